"""Apache Kafka's own command line tools, unchanged: fetched as jars, started with a time limit, their output read.

Path: run.py decides what is checked; this file starts one JVM per call and gives back what it printed.
Always: no JVM outlives its call, and standard output is the tool's own (log lines go to standard error).
"""
import os
import pathlib
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = "org.apache.kafka.tools."
CALL_SECONDS_MAX = 90
MVN_SECONDS_MAX = 600


class Failed(Exception):
    """A check did not hold; the text says what was seen."""


def fetch(libs: pathlib.Path) -> None:
    """Fills `libs` with the jars of pom.xml, unless they are there. Raises FileNotFoundError without mvn."""
    if list(libs.glob("kafka-tools-*.jar")):
        return
    if shutil.which("mvn") is None or shutil.which("java") is None:
        raise FileNotFoundError("mvn and java are needed")
    libs.mkdir(parents=True, exist_ok=True)
    command = ["mvn", "-B", "-q", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies",
               f"-DoutputDirectory={libs.resolve()}"]
    subprocess.run(command, check=True, timeout=MVN_SECONDS_MAX, stdin=subprocess.DEVNULL)


class Tool:
    """The tools in one folder of jars, against one bootstrap address."""

    def __init__(self, libs: pathlib.Path, bootstrap: str) -> None:
        self.libs = libs.resolve()
        self.bootstrap = bootstrap

    def command(self, name: str, *words: str) -> list[str]:
        """The command line of a tool; `name` is a class, below org.apache.kafka.tools unless it is a full name."""
        full = name if name.startswith(("org.", "kafka.")) else TOOLS + name
        java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}", "-cp", f"{self.libs}/*", full]
        return java + [str(word) for word in words]

    def offline(self, name: str, *words: str) -> str:
        """Runs a tool that asks no broker. Gives its standard output, fails if it ends with an error."""
        return self._run(self.command(name, *words), None)

    def run(self, name: str, *words: str, given: str | None = None) -> str:
        """Runs a tool against the broker; `given` is its standard input."""
        return self._run(self.command(name, "--bootstrap-server", self.bootstrap, *words), given)

    def start(self, name: str, *words: str) -> subprocess.Popen:
        """Starts a tool that runs until it is ended by `end`."""
        command = self.command(name, "--bootstrap-server", self.bootstrap, *words)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _run(self, command: list[str], given: str | None) -> str:
        name = command[command.index("-cp") + 2].rsplit(".", 1)[-1]
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        environment.pop("JAVA_TOOL_OPTIONS", None)
        command = [command[0], "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", *command[1:]]
        try:
            ended = subprocess.run(command, input=given, stdin=subprocess.DEVNULL if given is None else None,
                                   capture_output=True, text=True, encoding="utf-8", timeout=CALL_SECONDS_MAX, env=environment)
        except subprocess.TimeoutExpired as late:
            raise Failed(f"{name} did not end within {CALL_SECONDS_MAX} s; {_tail(late.stderr)}") from late
        if ended.returncode != 0:
            raise Failed(f"{name} ended with {ended.returncode}; {_tail(ended.stderr)} | {_tail(ended.stdout)}")
        return ended.stdout


def end(process: subprocess.Popen) -> None:
    """Ends a started tool as Ctrl-C would, then for certain."""
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(text: str | bytes | None) -> str:
    if text is None:
        return ""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return " / ".join(text.strip().splitlines()[-4:])[-600:]
