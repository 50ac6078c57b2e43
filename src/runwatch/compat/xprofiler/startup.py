"""What a new virtual machine does when it boots: serve the viewer, and write down its address.

The script is a value of `--metadata`.  gcloud splits such values at commas, so it has none.
"""

from __future__ import annotations

from typing import Final

OUTPUT: Final = "startup_output.json"
MAX_ATTEMPTS: Final = 19

_SCRIPT: Final = """\
#! /bin/bash
begun=$(date +%s)
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -yq python3-pip python3-venv docker.io jq curl
python3 -m venv /opt/xprofiler
/opt/xprofiler/bin/pip install --upgrade pip
/opt/xprofiler/bin/pip install tensorboard 'tensorboard-plugin-profile==@PLUGIN@' gcsfs setuptools
nohup /opt/xprofiler/bin/tensorboard --logdir '@DIRECTORY@' --host localhost --port @PORT@ \\
  > /var/log/xprofiler.log 2>&1 &
attempts=0
until curl -sf -o /dev/null http://localhost:@PORT@/ || [ $attempts -ge @ATTEMPTS@ ]; do
  attempts=$((attempts + 1))
  sleep 3
done
launched=$(date +%s)
gsutil cp gs://dl-platform-public-configs/proxy-agent-config.json /tmp/proxy.json
proxy=$(jq -r '.["agent-docker-containers"].latest["proxy-urls"]["@REGION@"][0]' /tmp/proxy.json)
metadata=http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default
token=$(curl -sf -H 'Metadata-Flavor: Google' \\
  "$metadata/identity?format=full&audience=$proxy/request-endpoint")
curl -sf -X POST -H "X-Inverting-Proxy-VM-ID: $token" -d '' "$proxy/request-endpoint" \\
  > /tmp/endpoint.json
backend=$(jq -r .backendID /tmp/endpoint.json)
docker run -d --net=host --restart always --name proxy-agent \\
  --env BACKEND="$backend" --env PROXY="$proxy/" --env PORT=@PORT@ \\
  --env SHIM_WEBSOCKETS=true --env SHIM_PATH=websocket-shim gcr.io/inverting-proxy/agent:latest
cd /tmp
jq -n --arg begun "$begun" --arg launched "$launched" --arg attempts "$attempts" \\
  --arg backend "$backend" --arg host "$(jq -r .hostname /tmp/endpoint.json)" \\
  '{startup_script_begin_ts: $begun} + {tb_launched_ts: $launched}
   + {tb_attempts_count: $attempts} + {tb_backend_id: $backend} + {hostname: $host}' > @OUTPUT@
gsutil cp @OUTPUT@ '@DIRECTORY@/@NAME@/'
"""


def script(directory: str, name: str, region: str, plugin: str, port: int = 6006) -> str:
    values = {
        "DIRECTORY": directory, "NAME": name, "REGION": region, "PLUGIN": plugin,
        "PORT": str(port), "ATTEMPTS": str(MAX_ATTEMPTS), "OUTPUT": OUTPUT,
    }  # fmt: skip
    text = _SCRIPT
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text
