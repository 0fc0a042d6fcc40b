"""Traces of runs, as OpenTelemetry spans over OTLP: to Langfuse, or to any other receiver."""
