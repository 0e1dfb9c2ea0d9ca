from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = ()

    operations = (
        migrations.CreateModel(
            name="Entry",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("message", models.TextField()),
                ("error", models.TextField(null=True)),
            ],
            options={"verbose_name_plural": "entries"},
        ),
    )
