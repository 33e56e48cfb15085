"""A function run in a process of its own that is ended when its time is over."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

DONE, NOT_FINISHED, TOO_LARGE, FAILED = "done", "did not finish", "too large", "failed"
_PATIENCE = 5.0  # seconds between asking a process to end and ending it


class Stopped(Exception):
    """The user stopped the run."""


def run_limited(
    function: Callable[[Any], dict[str, Any]], argument: Any, limit: float, stop: threading.Event | None = None
) -> dict[str, Any]:
    """What `function(argument)` returns, with "status": "done"; or why there is nothing, in "status" and "message".

    The process is spawned, so that neither threads nor memory of one fit are there in the next. It gets a session of
    its own, so that processes that it starts end with it.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(function, argument, sender), daemon=False)
    process.start()
    sender.close()
    ends = time.monotonic() + limit
    try:
        while not receiver.poll(0.05):
            if stop is not None and stop.is_set():
                raise Stopped
            if time.monotonic() > ends:
                return {"status": NOT_FINISHED, "limit": limit}
        return _received(receiver, process, limit)
    finally:
        _end(process)
        receiver.close()


def _received(receiver: Connection, process: BaseProcess, limit: float) -> dict[str, Any]:
    try:
        outcome: dict[str, Any] = receiver.recv()
    except EOFError:
        process.join(_PATIENCE)
        return {"status": FAILED, "message": f"the process ended by itself, exit code {process.exitcode}"}
    return {**outcome, "limit": limit} if outcome["status"] == NOT_FINISHED else outcome


def _work(function: Callable[[Any], dict[str, Any]], argument: Any, sender: Connection) -> None:
    """In the child: run, and send what came of it."""
    os.setsid()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        outcome = {"status": DONE, **function(argument)}
    except Exception as error:
        outcome = _of_error(error)
    sender.send(outcome)
    sender.close()


def _of_error(error: Exception) -> dict[str, Any]:
    from experiments.methods import OutOfTime, TooLarge  # only here: the parent need not load what it loads

    if isinstance(error, OutOfTime):
        return {"status": NOT_FINISHED}
    status = TOO_LARGE if isinstance(error, (TooLarge, MemoryError)) else FAILED
    return {"status": status, "message": f"{type(error).__name__}: {error}"[:2000]}


def _end_with_parent() -> None:
    """In the child: do not go on, nor let anything go on that was started here, when nobody waits for it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _end(process: BaseProcess) -> None:
    """End the process and all that it started; nothing happens if it has ended."""
    process.join(0.5)
    for name in (signal.SIGTERM, signal.SIGKILL):
        if process.is_alive():
            _signal(process.pid, name)
            process.join(_PATIENCE)


def _signal(pid: int | None, name: signal.Signals) -> None:
    """To the session that the child opened; to the child alone while it has not yet done so."""
    if pid is None:
        return
    try:
        if os.getpgid(pid) == pid:
            os.killpg(pid, name)
        else:
            os.kill(pid, name)
    except ProcessLookupError:
        pass
