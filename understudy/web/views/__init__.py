"""The views of the pages and the API, each as JSON."""
