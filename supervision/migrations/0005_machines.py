"""Event machines: where subjects stand, their append-only history, their timers."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

FOLDER = Path(__file__).parent / "sql"
FUNCTIONS = (
    "supervision_refuse_machineevent_update_v1",
    "supervision_refuse_machineevent_delete_v1",
    "supervision_refuse_machineevent_truncate_v1",
    "supervision_guard_standing_delete_v1",
    "supervision_history_left_whole_v1",
)


class Migration(migrations.Migration):
    dependencies = [
        ("supervision", "0004_limits"),
    ]

    operations = [
        migrations.CreateModel(
            name="Standing",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("machine", models.CharField(max_length=100, verbose_name="machine")),
                ("subject", models.CharField(max_length=200, verbose_name="subject")),
                ("state", models.CharField(max_length=100, verbose_name="state")),
                (
                    "since",
                    models.DateTimeField(
                        db_default=models.Func(function="supervision_now_v1", output_field=models.DateTimeField()),
                        verbose_name="since",
                    ),
                ),
                ("generation", models.BigIntegerField(default=0)),
                ("armed", models.JSONField(default=dict)),
                ("erased_at", models.DateTimeField(null=True)),
                ("is_leaving", models.BooleanField(default=False)),
            ],
            options={
                "verbose_name": "standing",
                "verbose_name_plural": "machines",
                "db_table": "supervision_standing",
                "ordering": ("machine", "subject"),
                "default_permissions": ("view",),
                "permissions": (("send_event", "Can send events to machines without a model"),),
                "constraints": [
                    models.UniqueConstraint(fields=("machine", "subject"), name="supervision_standing_one")
                ],
            },
        ),
        migrations.CreateModel(
            name="MachineEvent",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "standing_id", "sequence_num", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("sequence_num", models.BigIntegerField(verbose_name="number")),
                ("event", models.CharField(blank=True, max_length=100, verbose_name="event")),
                ("source", models.CharField(max_length=100, verbose_name="from")),
                ("target", models.CharField(max_length=100, verbose_name="to")),
                ("payload", models.JSONField(null=True, verbose_name="payload")),
                (
                    "idempotency_key",
                    models.CharField(blank=True, default="", max_length=200, verbose_name="idempotency key"),
                ),
                ("actor_ref", models.CharField(blank=True, default="", max_length=200, verbose_name="by")),
                ("note", models.TextField(blank=True, default="", verbose_name="note")),
                ("is_timed", models.BooleanField(default=False, verbose_name="timed")),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=models.Func(function="supervision_now_v1", output_field=models.DateTimeField()),
                        verbose_name="at",
                    ),
                ),
                (
                    "standing",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="events",
                        to="supervision.standing",
                    ),
                ),
            ],
            options={
                "verbose_name": "machine event",
                "verbose_name_plural": "machine events",
                "db_table": "supervision_machineevent",
                "ordering": ("standing", "sequence_num"),
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("idempotency_key", ""), _negated=True),
                        fields=("standing", "event", "idempotency_key"),
                        name="supervision_machineevent_key",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Timer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("event", models.CharField(max_length=100)),
                ("due_at", models.DateTimeField(null=True)),
                (
                    "standing",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="timers",
                        to="supervision.standing",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="supervision.task",
                    ),
                ),
            ],
            options={
                "verbose_name": "timer",
                "verbose_name_plural": "timers",
                "db_table": "supervision_timer",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)), fields=["due_at"], name="supervision_timer_due"
                    )
                ],
                "constraints": [models.UniqueConstraint(fields=("standing", "event"), name="supervision_timer_one")],
            },
        ),
        migrations.RunSQL(
            (FOLDER / "0005_machines.sql").read_text(encoding="utf-8"),
            "".join(f"DROP FUNCTION {name}() CASCADE;" for name in FUNCTIONS),
        ),
    ]
