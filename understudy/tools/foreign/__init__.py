"""Tools of other libraries as tools. No such library is imported before a tool of it is given.

Each library has a module that reads a tool: its description for the model, its function, and its
own options. `ForeignTool` makes a tool from this, in the same way for all libraries.
"""
