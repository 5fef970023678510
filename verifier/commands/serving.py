"""
The command ``serve``: a page on this machine.
"""

from __future__ import annotations

import socket

import click

from verifier.commands.options import DONE, examples
from verifier.model import ScheduleError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command(epilog=examples("verifier serve", "verifier serve --port 9000"))
@click.option(
    "--host", default="127.0.0.1", metavar="ADDRESS", help="The address to listen on (default 127.0.0.1, this machine)."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    metavar="N",
    help="The port (default 8765); 0 takes one that is free.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="A name under which browsers may ask for the page, besides the address; several are possible.",
)
def serve(host: str, port: int, names: tuple[str, ...]) -> int:
    """
    A page to choose, judge and look at schedules.

    It runs on this machine, for this machine; requests under other names or from other pages are refused, and no other host is
    contacted. Work is done in processes of their own, with limits on size, time and number. Ends with an interrupt. Needs the
    extra serve: pip install 'pipeline-schedule-verifier[serve]'.
    """
    try:
        import uvicorn

        from verifier.views.served.app import application
    except ModuleNotFoundError as error:
        raise ScheduleError(f"serve: {error.name} is missing; pip install 'pipeline-schedule-verifier[serve]'") from None
    with _listen(host, port) as listening:
        port = listening.getsockname()[1]
        suffix = "" if port == 80 else f":{port}"  # Browsers leave the usual port out.
        hosts = [f"{_bracketed(name.lower())}{suffix}" for name in (host, *names, *(LOOPBACK if host in LOOPBACK else ()))]
        click.echo(f"http://{hosts[0]}/")
        if host not in LOOPBACK:
            click.echo("whoever reaches this address can start work on this machine", err=True)
        config = uvicorn.Config(
            application(hosts),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            limit_concurrency=64,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=2,
        )
        uvicorn.Server(config).run(sockets=[listening])
    return DONE


def _listen(host: str, port: int) -> socket.socket:
    """A socket of our own: with port 0 its number has to be known before the first request."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        said = (error.strerror or str(error)).partition(" (")[0].lower()
        raise ScheduleError(f"serve: {host} port {port}: {said}; choose another with --host or --port") from None


def _bracketed(name: str) -> str:
    """A name as ``Host`` says it."""
    return f"[{name}]" if ":" in name else name
