"""The triggers: append-only log and visits with their two doors, ended tasks that never change; storage settings."""

from pathlib import Path

from django.db import migrations

FOLDER = Path(__file__).parent / "sql"
FUNCTIONS = (
    "supervision_refuse_log_update_v1",
    "supervision_refuse_log_delete_v1",
    "supervision_refuse_truncate_v1",
    "supervision_refuse_terminal_change_v1",
    "supervision_refuse_task_delete_v1",
    "supervision_guard_tombstone_v1",
    "supervision_pruned_whole_v1",
    "supervision_guard_erasure_v1",
    "supervision_refuse_visit_update_v1",
    "supervision_refuse_visit_delete_v1",
    "supervision_refuse_visit_truncate_v1",
)


class Migration(migrations.Migration):
    dependencies = [("supervision", "0002_rows")]
    operations = [
        migrations.RunSQL(
            "".join((FOLDER / name).read_text(encoding="utf-8") for name in ("0003_guards.sql", "0003_visits.sql")),
            "".join(f"DROP FUNCTION {name}() CASCADE;" for name in FUNCTIONS),
        )
    ]
