"""Works in coroutines."""

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline._paceline import Work


async def finish(work: "Work") -> Any:
    """The work's result. Whoever is cancelled stops waiting; the call goes on."""
    if not work.test():
        await asyncio.get_running_loop().run_in_executor(None, work.wait)
    return work.result()
