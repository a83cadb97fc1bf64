"""The steps of the pipeline, and what they share."""
