"""For those whose work it is: an index of what organisations own, and word of changes to whoever waits for one."""

from pathlib import Path

from django.db import migrations, models

SQL = Path(__file__).parent / "sql" / "0006_watchers.sql"


class Migration(migrations.Migration):
    dependencies = [("supervision", "0005_machines")]
    operations = [
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                condition=models.Q(("owner__isnull", True), models.Q(("owner_ref", ""), _negated=True)),
                fields=["owner_ref", "id"],
                name="supervision_task_by_owner_ref",
            ),
        ),
        migrations.RunSQL(SQL.read_text(encoding="utf-8"), "DROP FUNCTION supervision_tell_watchers_v1() CASCADE;"),
    ]
