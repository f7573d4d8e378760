"""The owner's JSON API: what those whose work it is may see and do, as programs do it. One ``include()``:

>>> path("api/", include("supervision.api.urls"))

On Django REST framework: ``pip install django-supervision[api]``.
"""
