"""`track: otel`: runs as OpenTelemetry spans, by the conventions for GenAI and by OpenInference."""

from workbench import hookimpl


@hookimpl
def register_trackers(register):
    register("otel", "workbench_otel.tracker:OTel")
