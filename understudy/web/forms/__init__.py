"""How people answer by a form: the form of a request, its fields, and one form for many."""
