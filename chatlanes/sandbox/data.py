"""The sandbox's folder for data, which git does not see."""

from pathlib import Path

from chatlanes.settings.running_sandbox import DATA


def hide_from_git(folder: Path) -> None:
    """Make the folder, with a `.gitignore` of everything in it. A folder that the user made gets none."""
    is_ours = not folder.exists() or folder == DATA
    folder.mkdir(parents=True, exist_ok=True)
    ignored = folder / ".gitignore"
    if is_ours and not ignored.exists():
        ignored.write_text("*\n")
