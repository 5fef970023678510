"""
The served page as an application: what may be asked, by whom, and what is answered.

Nobody but a page that this server sent may ask for work. A browser says in ``Host`` which name it used and in ``Origin`` which
page asks; a foreign name (a rebound one, for instance) is refused with 421, a foreign page with 403. Requests are JSON and say
so, which no form of another page can. Nothing here contacts another host, and the policy sent along keeps the page from it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from verifier.families import FAMILIES, PLACEMENTS
from verifier.messages import MODELS
from verifier.model import ScheduleError
from verifier.views.palette import THEMES
from verifier.views.served.jobs import BusyError, Job, Jobs
from verifier.views.served.request import MAX_BODY, MAX_BUDGET, MAX_OPS, MAX_RANKS, MAX_SEED, checked
from verifier.views.served.work import FILES

BODY_SECONDS = 15.0
"""How long a request may take to arrive."""

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_REPORT_POLICY = "sandbox allow-scripts; frame-ancestors 'self'"
"""The report brings its own policy; this one keeps its script, whatever it did, away from the page around it."""


def application(hosts: Collection[str]) -> Starlette:
    """
    The application.

    Parameters
    ----------
    hosts
        What ``Host`` may say, with the port: ``127.0.0.1:8765``.

    Examples
    --------
    >>> [route.path for route in application(["127.0.0.1:8765"]).routes][:3]
    ['/', '/serve.css', '/serve.js']
    """
    jobs = Jobs()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await jobs.close()

    application = Starlette(
        routes=[
            Route("/", _page),
            Route("/serve.css", _style),
            Route("/serve.js", _script),
            Route("/jobs", _start, methods=["POST"]),
            Route("/jobs/{job}", _look),
            Route("/jobs/{job}", _stop, methods=["DELETE"]),
            Route("/jobs/{job}/{file}", _file),
        ],
        middleware=[Middleware(Guard, hosts=frozenset(hosts))],
        exception_handlers={HTTPException: _refused},
        lifespan=lifespan,
    )
    application.state.jobs = jobs
    return application


class Guard:
    """Refuses foreign names and foreign pages, before anything else is looked at; and sends the policy with every answer."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        host, origins = headers.getlist("host"), headers.getlist("origin")
        if len(host) != 1 or host[0].lower() not in self.hosts:
            answer: ASGIApp = _error(421, "this page is not known by that name; use the address that verifier serve printed")
        elif any(origin.lower() != f"http://{host[0].lower()}" for origin in origins):
            answer = _error(403, "only the page of this server may ask for that")
        else:
            answer = self.app
        await answer(scope, receive, send_with_headers)


class _Json(JSONResponse):
    """JSON in ASCII: names in files may hold halves of characters, which UTF-8 cannot carry."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


# ---------------------------------------- pages


async def _page(_: Request) -> Response:
    families = "".join(
        f'<option value="{escape(family.name)}" data-about="{escape(f"{family.description}; sizes: {family.conditions}")}">'
        f"{escape(family.name)}</option>"
        for family in FAMILIES.values()
    )
    text = Template(_part("serve.html")).substitute(
        families=families,
        placements="".join(f"<option>{escape(name)}</option>" for name in PLACEMENTS),
        models="".join(f'<label><input type="checkbox" name="messages" value="{name}"> {name}</label>' for name in MODELS),
        ranks=MAX_RANKS,
        ops=MAX_OPS,
        budget=MAX_BUDGET,
        seed=MAX_SEED,
    )
    return Response(text, media_type="text/html")


async def _style(_: Request) -> Response:
    light, dark = ("".join(f"--{name}:{colour};" for name, colour in theme.items()) for theme in THEMES.values())
    themes = f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"
    return Response(themes + _part("serve.css"), media_type="text/css")


async def _script(_: Request) -> Response:
    return Response(_part("serve.js"), media_type="text/javascript")


def _part(name: str) -> str:
    """A file of the page."""
    return files("verifier.views").joinpath("page", name).read_text("utf-8")


# ---------------------------------------- jobs


async def _start(request: Request) -> Response:
    written = await _body(request)
    try:
        job = _jobs(request).start(checked(written))
    except BusyError as error:
        raise HTTPException(429, str(error)) from None
    except ScheduleError as error:
        raise HTTPException(400, str(error)) from None
    return _Json(job.as_json(), 201)


async def _look(request: Request) -> Response:
    return _Json(_job(request).as_json())


async def _stop(request: Request) -> Response:
    job = _job(request)
    _jobs(request).stop(job)
    return _Json(job.as_json())


async def _file(request: Request) -> Response:
    """A file of a job: the report to look at, the others to keep."""
    name = request.path_params["file"]
    written = _job(request).result.get("files", {}).get(name)
    if written is None:
        raise HTTPException(404, "there is no such file")
    if name == "report" and "download" not in request.query_params:
        return Response(written, media_type="text/html", headers={"content-security-policy": _REPORT_POLICY})
    kinds = {"csv": "text/csv", "html": "text/html", "svg": "image/svg+xml"}
    kind = kinds.get(FILES[name].rpartition(".")[2], "application/json")
    return Response(written, media_type=kind, headers={"content-disposition": f'attachment; filename="{FILES[name]}"'})


def _jobs(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs


def _job(request: Request) -> Job:
    try:
        return _jobs(request)[request.path_params["job"]]
    except KeyError:
        raise HTTPException(404, "there is no such job, or no longer") from None


async def _body(request: Request) -> Any:
    """The JSON of a request that is not too large and does not dawdle."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "expected application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY:
                    raise HTTPException(
                        413, f"more than {MAX_BODY // 2**20} MiB, the limit; the command line reads larger files"
                    )
        return json.loads(body)
    except TimeoutError:
        raise HTTPException(408, "the request took too long to arrive") from None
    except (ValueError, RecursionError):
        raise HTTPException(400, "expected JSON") from None


# ---------------------------------------- errors


def _error(status: int, text: str) -> JSONResponse:
    return _Json({"error": text}, status)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, error.detail)
