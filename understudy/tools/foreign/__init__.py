"""Tools of other libraries as tools. No such library is imported before a tool of it is given.

Each library has a module that reads a tool: what a model is told of it, how it is called, and what
it says of itself. `ForeignTool` makes a tool of that, in one way for all of them.
"""
