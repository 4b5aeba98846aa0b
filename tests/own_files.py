"""Component files of users in tests."""

from fglbench import registry


def read_again() -> None:
    """Clear the caches of component files after a test has changed, added or removed one."""
    for cached in (registry._files, registry.declaration, registry.module):
        cached.cache_clear()
