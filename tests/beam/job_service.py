"""Beam's job service with several workers per job, as a process: `python job_service.py POOL_ADDRESS...`.

Beam's `local_job_service_main` gives each job one worker, and all workers of a job have the same address. Here a job
has one worker per pool, and the service at that address forwards to the pools in turn, like the service of a cluster.
Prints both addresses as JSON.
"""

import itertools
import json
import sys
import threading
from concurrent import futures

import grpc
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.portability import local_job_service
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

POOLS = sys.argv[1:]


class Job(local_job_service.BeamJob):
    def _invoke_runner(self):
        self.set_state(local_job_service.beam_job_api_pb2.JobState.RUNNING)
        runner = FnApiRunner(provision_info=self._provision_info)
        runner._num_workers = len(POOLS)
        return runner.run_via_runner_api(self._pipeline_proto, self.pipeline_options())


class PoolsInTurn(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    def __init__(self):
        channels = map(grpc.insecure_channel, POOLS)
        stub = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub
        self._pools = itertools.cycle([stub(channel) for channel in channels])

    def StartWorker(self, request, context):  # noqa: N802
        return next(self._pools).StartWorker(request)


pools = grpc.server(futures.ThreadPoolExecutor(4))
beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(PoolsInTurn(), pools)
pools_port = pools.add_insecure_port("localhost:0")
pools.start()
jobs_port = local_job_service.LocalJobServicer(beam_job_type=Job).start_grpc_server()
print(json.dumps({"jobs": f"localhost:{jobs_port}", "pools": f"localhost:{pools_port}"}), flush=True)
threading.Event().wait()
