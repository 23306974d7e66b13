"""Apache Kafka's own command-line tools, unchanged: the checks of ../java against a cluster of this script's own."""

import os
import subprocess
import sys

from cluster import arguments, run

ARGUMENTS = arguments()
CHECKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "java", "run.py")


def test(cluster):
    subprocess.run([sys.executable, CHECKS, "--bootstrap", cluster.broker(1), "--follower", cluster.broker(2), "--libs",
                    ARGUMENTS.kafka_libs, "--data", cluster.data], check=True, timeout=900)


if __name__ == "__main__":
    run(test, ARGUMENTS, "java", 24000)
