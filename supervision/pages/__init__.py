"""The pages of those whose work it is: their tasks, one task, its questions; and what signed links open.

In the project's urls: ``path("work/", include("supervision.pages.urls"))``. They extend the project's ``base.html``.
"""
