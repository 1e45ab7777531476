"""Server: a registry of Prometheus metrics on a port, in a thread of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["Server"]


class Server:
    """Serve a registry at `/metrics` until `stop` is called.

    Args:
        port: the port; 0 takes any that is free.
        address: the address to listen at.
        registry: what is served.

    Attributes:
        url: where the metrics are.

    Raises:
        UsageError: the port cannot be had.
    """

    def __init__(self, port: int, address: str, registry: CollectorRegistry) -> None:
        from prometheus_client import start_http_server

        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except OSError as error:
            raise UsageError(
                f"port {port} at {address!r} of PrometheusExporter: it must be free, and cannot be "
                f"listened at: {error}. Choose another, or 0 for any that is free "
                "(TRAINER_HOOKS_PROMETHEUS_PORT in the environment)."
            ) from error
        host = f"[{address}]" if ":" in address else address
        self.url = f"http://{host}:{self._server.server_port}/metrics"

    def stop(self) -> None:
        """Close the port and end the thread; a second time does nothing."""
        if threading.current_thread() is self._thread:
            # the garbage collector can come by in any thread, and this one cannot wait for itself
            threading.Thread(target=self.stop, daemon=True).start()
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
