"""Runs under a real server and worker: what is asked again."""

from __future__ import annotations

import asyncio


async def test_a_run_from_the_form(stack, mill, fake_server) -> None:
    mill.prompts([f"prompt {n}" for n in range(8)])
    async with fake_server() as fake:
        mill.url = fake.url
        await asyncio.to_thread(stack.worker)
        run = stack.start("refresh/refresh", recipe=mill.data())
        found = await asyncio.to_thread(stack.wait, run)
    assert found["state"]["name"] == "Completed"
    assert len(mill.rows()) == 8
