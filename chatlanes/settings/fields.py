"""What a setting is made of: how a field says its default, its unit and what is allowed, and the types that check it.

Promises that a field made here has all that `settings.table` writes down. Knows no setting.
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from chatlanes.settings import checks


def text(default: str | None, allowed: str, means: str, *, shown: bool = True) -> Any:
    return Field(default, description=means, repr=shown, json_schema_extra={"unit": "", "allowed": allowed})


def number(default: float | None, unit: str, least: float, most: float, means: str) -> Any:
    whole = isinstance(least, int)
    allowed = f"a whole number from {least:,} to {most:,}" if whole else f"a number from {least:,g} to {most:,g}"
    extra: Any = {"unit": unit, "allowed": allowed}
    return Field(default, ge=least, le=most, allow_inf_nan=False, description=means, json_schema_extra=extra)


def _secret(check: Any) -> AfterValidator:
    return AfterValidator(lambda secret: SecretStr(check(secret.get_secret_value())))


BotToken = Annotated[SecretStr, _secret(checks.bot_token)]
WebhookSecret = Annotated[SecretStr, _secret(checks.webhook_secret)]
WebAddress = Annotated[str, AfterValidator(checks.web_address)]
RedisAddress = Annotated[str, AfterValidator(checks.redis_address)]
ImportPath = Annotated[str, AfterValidator(checks.import_path)]
Order = Annotated[str, AfterValidator(checks.order)]
KindsOrPath = Annotated[str, AfterValidator(checks.kinds_or_path)]
Kinds = Annotated[tuple[str, ...], BeforeValidator(checks.kinds)]
Networks = Annotated[tuple[str, ...], BeforeValidator(checks.networks)]
ExistingFile = Annotated[Path, AfterValidator(checks.existing_file)]
