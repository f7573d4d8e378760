"""The form in admin that starts the example work."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from project import files
from project.csv_source import BadInput, open_source


class UploadForm(forms.Form):
    """A file whose countries are to be normalised. What its header tells already is said here, not by a failed task."""

    file = forms.FileField(label=_("CSV file"), widget=forms.FileInput(attrs={"accept": ".csv,text/csv"}))
    column = forms.CharField(label=_("Column of the countries"), initial="country", max_length=200)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if "file" in cleaned and "column" in cleaned:
            try:
                open_source(cleaned["file"], cleaned["column"], max_bytes=files.MAX_INPUT_BYTES)
            except BadInput as fault:
                self.add_error("file", str(fault))
        return cleaned
