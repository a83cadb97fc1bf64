"""Hosts of one store in several processes of one machine: calls go to the owner by a socket.

Imported when the first of these processes is seen: where only one runs, there is nothing of it.
"""
