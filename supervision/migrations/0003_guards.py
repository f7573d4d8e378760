"""The triggers: append-only log with its two doors, ended tasks that never change; and storage settings."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).parent / "sql" / "0003_guards.sql"


class Migration(migrations.Migration):
    dependencies = [("supervision", "0002_kernel")]
    operations = [
        migrations.RunSQL(
            SQL.read_text(encoding="utf-8"),
            """
            DROP FUNCTION supervision_refuse_log_update_v1() CASCADE;
            DROP FUNCTION supervision_refuse_log_delete_v1() CASCADE;
            DROP FUNCTION supervision_refuse_truncate_v1() CASCADE;
            DROP FUNCTION supervision_refuse_terminal_change_v1() CASCADE;
            DROP FUNCTION supervision_refuse_task_delete_v1() CASCADE;
            DROP FUNCTION supervision_guard_tombstone_v1() CASCADE;
            DROP FUNCTION supervision_pruned_whole_v1() CASCADE;
            DROP FUNCTION supervision_guard_erasure_v1() CASCADE;
            """,
        )
    ]
