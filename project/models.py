"""The demo's own rows."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class Order(models.Model):
    """Something that a customer bought. Its state is moved by events: see ``project.ordering``."""

    class State(models.TextChoices):
        PENDING = "pending", _("pending")
        PAYMENT_AUTHORIZED = "payment_authorized", _("payment authorized")
        FULFILLMENT_QUEUED = "fulfillment_queued", _("fulfilment queued")
        SHIPPED = "shipped", _("shipped")
        DELIVERED = "delivered", _("delivered")
        CANCELED = "canceled", _("canceled")
        REFUNDED = "refunded", _("refunded")

    reference = models.CharField(_("reference"), max_length=40, unique=True)
    item = models.CharField(_("item"), max_length=100)
    amount = models.DecimalField(_("amount"), max_digits=9, decimal_places=2)
    state = models.CharField(_("state"), max_length=30, choices=State, default=State.PENDING, db_index=True)
    stock_reserved = models.BooleanField(_("stock reserved"), default=False)
    shipment_created = models.BooleanField(_("shipment created"), default=False)
    paid = models.DecimalField(_("paid"), max_digits=9, decimal_places=2, default=0)
    refunded = models.DecimalField(_("refunded"), max_digits=9, decimal_places=2, default=0)

    class Meta:
        verbose_name = _("order")
        verbose_name_plural = _("orders")
        ordering = ("-pk",)
        permissions = (("refund_order", _("Can refund orders")),)

    def __str__(self) -> str:
        return self.reference
