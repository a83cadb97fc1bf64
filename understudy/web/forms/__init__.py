"""Forms for answers: the form of a request, its fields, and one form for many requests."""
