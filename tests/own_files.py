"""Users' component files in tests."""

from fglbench import registry


def read_again() -> None:
    """Forgets what was read of component files, because a test has changed, added or removed one."""
    for cached in (registry._files, registry.declaration, registry.module):
        cached.cache_clear()
