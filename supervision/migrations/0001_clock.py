"""The database's clock and ids: functions that the tables' defaults call."""

from pathlib import Path

from django.db import migrations

SQL = Path(__file__).parent / "sql" / "0001_clock.sql"


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.RunSQL(
            SQL.read_text(encoding="utf-8"),
            """
            DROP FUNCTION supervision_id_v1();
            DROP FUNCTION supervision_clock_v1();
            DROP FUNCTION supervision_now_v1();
            """,
        )
    ]
