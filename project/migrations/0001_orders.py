"""The order of the demo."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("reference", models.CharField(max_length=40, unique=True, verbose_name="reference")),
                ("item", models.CharField(max_length=100, verbose_name="item")),
                ("amount", models.DecimalField(decimal_places=2, max_digits=9, verbose_name="amount")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("payment_authorized", "payment authorized"),
                            ("fulfillment_queued", "fulfilment queued"),
                            ("shipped", "shipped"),
                            ("delivered", "delivered"),
                            ("canceled", "canceled"),
                            ("refunded", "refunded"),
                        ],
                        db_index=True,
                        default="pending",
                        max_length=30,
                        verbose_name="state",
                    ),
                ),
                ("stock_reserved", models.BooleanField(default=False, verbose_name="stock reserved")),
                ("shipment_created", models.BooleanField(default=False, verbose_name="shipment created")),
                ("paid", models.DecimalField(decimal_places=2, default=0, max_digits=9, verbose_name="paid")),
                ("refunded", models.DecimalField(decimal_places=2, default=0, max_digits=9, verbose_name="refunded")),
            ],
            options={
                "verbose_name": "order",
                "verbose_name_plural": "orders",
                "ordering": ("-pk",),
                "permissions": (("refund_order", "Can refund orders"),),
            },
        ),
    ]
