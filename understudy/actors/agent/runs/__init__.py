"""The runs of one agent that is in memory: what starts them, and what follows when one ends.

Its actor calls these functions, on the loop, each with the agent's slot, which holds all that they
change. Every one may raise a `JournalFailed`: then the actor passivates the agent.
"""
