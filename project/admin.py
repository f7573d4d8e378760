"""The demo's own rows in admin."""

from django.contrib import admin

from project.models import Order
from supervision.admin import MachineAdmin, SupervisedAdmin


@admin.register(Order)
class OrderAdmin(MachineAdmin, SupervisedAdmin, admin.ModelAdmin):  # type: ignore[type-arg]
    """Orders with their events as buttons, their history, and the tasks that work on them."""

    list_display = ("reference", "item", "amount", "state")
    list_filter = ("state",)
    search_fields = ("reference__startswith",)
    fields = ("reference", "item", "amount", "state", "stock_reserved", "shipment_created", "paid", "refunded")
    readonly_fields = ("stock_reserved", "shipment_created", "paid", "refunded")
