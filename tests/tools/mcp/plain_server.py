"""A stdio server in plain Python, of the protocol's first years: it starts in 10 ms, and does on demand what servers should not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def tool(name, schema=None, **more):
    return {"name": name, "inputSchema": schema or {"type": "object"}, **more}


ENVIRONMENT = dict(os.environ)  # noqa: TID251
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    tool("echo", TEXT, description="Say it again.", annotations={"readOnlyHint": True}),
    tool("die", annotations={"readOnlyHint": True}),
    tool("act"),
    tool("hang", annotations={"readOnlyHint": True}),
    tool("secret"),
    tool("grow"),
    tool("child"),
    tool("refuse"),
    tool("linger"),
    tool("told"),
    tool("either", {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}}),
]


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def called(name, arguments):
    match name:
        case "echo":
            return text(arguments["text"])
        case "die" | "act":
            os._exit(3)
        case "hang":
            time.sleep(3600)
        case "secret":
            sys.stderr.write(f"key={ENVIRONMENT.get('KEY')}\n")
            sys.stderr.flush()
            return text(json.dumps(ENVIRONMENT))
        case "grow":
            TOOLS.append(tool("grown"))
            send(method="notifications/tools/list_changed")
            return text("grown")
        case "linger":
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(Path(arguments["log"]).write_text("terminated")))
            return text("from now on only SIGTERM ends it")
        case "child":
            return text(str(subprocess.Popen(["sleep", "3600"]).pid))
    return None


def answer(request):
    method, params = request["method"], request.get("params", {})
    match method:
        case "initialize":
            about = {"name": "plain", "version": "1"}
            capabilities = {"tools": {"listChanged": True}}
            return {"protocolVersion": "2025-06-18", "serverInfo": about, "capabilities": capabilities}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            if params["name"] == "told":
                return text(json.dumps(params.get("_meta", {})))
            asked_for = params.get("_meta", {}).get("progressToken")
            if params["name"] == "hang" and asked_for is not None:
                half = {"progressToken": asked_for, "progress": 1, "total": 2, "message": "hanging"}
                send(method="notifications/progress", params=half)
            return called(params["name"], params.get("arguments", {}))
    return None


TOOLS += json.loads(ENVIRONMENT.get("MORE_TOOLS", "[]"))
if len(sys.argv) > 1:
    with Path(sys.argv[1]).open("a") as log:
        log.write(f"{os.getpid()}\n")
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request)
        if result is None:
            send(id=request["id"], error={"code": -32601, "message": f"no {request['method']} here"})
        else:
            send(id=request["id"], result=result)
if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
    signal.pause()
