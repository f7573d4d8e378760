"""Pipelines: pointers, visits, and the triggers that keep visits append-only."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

SQL = Path(__file__).parent / "sql" / "0009_pipelines.sql"


class Migration(migrations.Migration):
    dependencies = [
        ("supervision", "0008_rounds"),
    ]

    operations = [
        migrations.CreateModel(
            name="Pointer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("pipeline", models.CharField(max_length=100, verbose_name="pipeline")),
                ("subject", models.CharField(max_length=200, verbose_name="subject")),
                ("state", models.CharField(max_length=150, verbose_name="state")),
                (
                    "since",
                    models.DateTimeField(
                        db_default=models.Func(function="supervision_now_v1", output_field=models.DateTimeField()),
                        verbose_name="since",
                    ),
                ),
                ("generation", models.BigIntegerField(default=1)),
                ("counts", models.JSONField(default=dict)),
                ("forgiven", models.JSONField(default=dict)),
                ("params", models.JSONField(default=dict, verbose_name="params")),
                ("previous", models.JSONField(null=True)),
                (
                    "entered_at",
                    models.DateTimeField(
                        db_default=models.Func(function="supervision_now_v1", output_field=models.DateTimeField())
                    ),
                ),
                ("left_entered_at", models.DateTimeField(null=True)),
                ("entered_in", models.BigIntegerField(default=0)),
                ("visit_count", models.BigIntegerField(default=0, verbose_name="visits")),
                ("run_from", models.BigIntegerField(default=0)),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="supervision.task",
                        verbose_name="run",
                    ),
                ),
            ],
            options={
                "verbose_name": "pointer",
                "verbose_name_plural": "pointers",
                "db_table": "supervision_pointer",
                "ordering": ("pipeline", "subject"),
                "permissions": (("repoint_pointer", "Can re-point pipelines"),),
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Visit",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "pointer_id", "sequence_num", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("sequence_num", models.BigIntegerField(verbose_name="number")),
                ("logged_in", models.BigIntegerField(null=True)),
                ("state", models.CharField(max_length=150, verbose_name="state")),
                ("number", models.PositiveIntegerField(verbose_name="visit")),
                ("outcome", models.CharField(max_length=100, verbose_name="outcome")),
                ("next_state", models.CharField(max_length=150, verbose_name="went to")),
                ("yielded", models.BooleanField(verbose_name="yielded")),
                ("errors", models.TextField(blank=True, default="", verbose_name="errors")),
                ("entered_at", models.DateTimeField(verbose_name="entered")),
                (
                    "left_at",
                    models.DateTimeField(
                        db_default=models.Func(function="supervision_now_v1", output_field=models.DateTimeField()),
                        verbose_name="left",
                    ),
                ),
                ("actor_ref", models.CharField(blank=True, default="", max_length=200, verbose_name="moved by")),
                ("note", models.TextField(blank=True, default="", verbose_name="note")),
                (
                    "pointer",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="visits",
                        to="supervision.pointer",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="supervision.task",
                    ),
                ),
            ],
            options={
                "verbose_name": "visit",
                "verbose_name_plural": "visits",
                "db_table": "supervision_visit",
                "ordering": ("pointer", "sequence_num"),
                "default_permissions": (),
            },
        ),
        migrations.AddConstraint(
            model_name="pointer",
            constraint=models.UniqueConstraint(fields=("pipeline", "subject"), name="supervision_pointer_one"),
        ),
        migrations.RunSQL(
            SQL.read_text(encoding="utf-8"),
            """
            DROP FUNCTION supervision_refuse_visit_update_v1() CASCADE;
            DROP FUNCTION supervision_refuse_visit_delete_v1() CASCADE;
            DROP FUNCTION supervision_refuse_visit_truncate_v1() CASCADE;
            """,
        ),
    ]
