"""What is reached over HTTP: credentials, TLS files, and the systems that know the load of a Kafka cluster.

A part of the declaration in `models`; it contacts nothing.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mm2mgr.spec.values import TimeSpan, Url


class Model(BaseModel):
    """How every model of the declaration behaves: unknown keys are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    def __hash__(self) -> int:
        """Return the same for all of a class: pydantic would copy a default without a hash for each flow, and nobody alters one."""
        return hash(type(self))


class Basic(Model):
    username: str
    """Name, or a placeholder such as `${env:CONNECT_USER}`."""
    password: str
    """A placeholder such as `${env:CONNECT_PASSWORD}`; resolved on mm2mgr's machine, never stored."""


class Auth(Model):
    """Credentials for a REST API."""

    basic: Basic | None = None
    """User name and password."""
    bearer: str | None = None
    """A token, as a placeholder such as `${env:CONNECT_TOKEN}`."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Auth:
        if (self.basic is None) == (self.bearer is None):
            raise ValueError("set either basic or bearer")
        return self


class Tls(Model):
    """TLS towards a REST API; files are PEM, relative to where mm2mgr runs."""

    ca: str | None = None
    """Certificates to trust; default: the system's."""
    certificate: str | None = None
    """Own certificate chain, for mutual TLS."""
    key: str | None = None
    """Private key of that certificate."""
    key_password: str | None = None
    """Password of an encrypted `key`, as a placeholder such as `${env:CONNECT_KEY_PASSWORD}`; resolved on mm2mgr's machine, never stored."""


class MetricsEndpoint(Model):
    """A system that knows the load of a cluster, over HTTP."""

    url: Url | None = None
    """Base URL, such as `http://prometheus:9090` or `http://cruise-control:9090/kafkacruisecontrol`; here, or in the defaults of clusters that share one."""
    auth: Auth | None = None
    """Default: none."""
    tls: Tls | None = None
    """For an `https` URL; default: the system's authorities, no client certificate."""


class PrometheusMetrics(MetricsEndpoint):
    """Prometheus, or anything with its HTTP API, that scrapes the Kafka exporter or a JMX exporter of the brokers."""

    labels: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = {}
    """Labels that all series of this cluster carry, and no other's: `{namespace: kafka, strimzi_io_cluster: dc1}`. Needed as soon as one Prometheus knows two clusters."""
    rate_window: Annotated[TimeSpan, Field(ge=10)] = 300
    """Over how much time the rates of topics are taken: at least four scrapes."""
    retention: TimeSpan = 15 * 86400
    """How far back a catch-up asks; Prometheus itself keeps 15 days by default."""


class Metrics(Model):
    """Where else than from Kafka `mm2mgr sample --from …` may learn the load of a cluster."""

    prometheus: PrometheusMetrics | None = None
    """For `--from prometheus`."""
    cruise_control: MetricsEndpoint | None = None
    """For `--from cruise-control`: its REST API."""
    cruise_control_topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")] | None = None
    """For `--from cruise-control-topic`: its `partition.metric.sample.store.topic` on this cluster; `__KafkaCruiseControlPartitionMetricSamples` as shipped, `strimzi.cruisecontrol.partitionmetricsamples` with Strimzi."""
    cruise_control_interval: TimeSpan = 120
    """Its `metric.sampling.interval.ms`, which one sample of that topic covers: 2 minutes as shipped."""
