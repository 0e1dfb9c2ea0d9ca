"""The Bot API: client, errors, files and flood control."""
