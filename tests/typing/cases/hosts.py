"""Hosts that share a store: which of them runs an agent, and what a host is asked for."""

from __future__ import annotations

from typing import assert_type

from understudy import Agent, AgentRef, Outcome, Runtime, ScriptedModel
from understudy.actors import AgentInfo, Future, Page, RuntimeStatus
from understudy.cluster import Cluster, Hosts

MODEL = ScriptedModel(["done"])
HOST = Runtime(labels={"gpu"}, any_host=False, lease=10, host="worker 3")
Runtime(labels=["gpu", "eu"], lease=None)
Runtime(labels=7)  # error: texts
Runtime(labels={1, 2})  # error: texts
Runtime(any_host="never")  # error: whether
Runtime(lease="10 s")  # error: seconds
Runtime(host=3)  # error: a text
Agent("a", MODEL, movable=False, needs={"gpu"}, version=2, on_version="wait")
Agent("a", MODEL, needs=("gpu", "eu"), on_version="newest")
Agent("a", MODEL, movable="never")  # error: whether
Agent("a", MODEL, needs={"gpu": True}, version=0)
Agent("a", MODEL, needs=[7])  # error: texts
Agent("a", MODEL, version="2")  # error: a number
Agent("a", MODEL, on_version="oldest")  # error: newest or wait


async def deploy(ref: AgentRef) -> None:
    assert_type(HOST.drain(), Future[bool])
    assert_type(await HOST.drain(timeout=30), bool)
    HOST.drain(timeout="soon")  # error: seconds
    assert_type(HOST.status(), RuntimeStatus)
    assert_type(HOST.status().draining, bool)
    assert_type(await HOST.agents(version="f1"), Page[AgentInfo])
    HOST.agents(version=1)  # error: a fingerprint
    assert_type(await HOST.outcome("t", message_id="m"), Outcome | None)
    await ref.cancel(run_id="r")
    await ref.pause(run_id="r")
    await ref.retry(run_id=7)  # error: a text


async def many() -> None:
    pool = Hosts("my_app:agents", 2, num_cpus=1, options={"labels": ["gpu"]})
    cluster = Cluster([pool], store="postgresql://localhost/app", lease=10, any_host=True)
    Cluster("my_app:agents", 4, store="postgresql://localhost/app", engine="ray")
    Cluster("my_app:agents", 4, store="postgresql://localhost/app", engine="dask")  # error: no such
    Cluster("my_app:agents", 4, store="postgresql://localhost/app", lease="10 s")  # error: seconds
    assert_type(await cluster.drain(), bool)
    assert_type(await cluster.scale(6), None)
    await cluster.scale("six")  # error: a number
