"""Certificates, and the cluster files that name them."""

from datetime import UTC, datetime, timedelta

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.x509.oid import NameOID

KEYS = {
    "scheduler": "tls://10.0.0.5:8786", "ca": "ca.pem", "certificate": "home.pem", "private_key": "home.key",
    "mailbox": "s3://trellis-work/prod", "s3": {"endpoint": "https://minio.example", "region": "eu-south-1"},
    "key": "secret/mailbox.key", "memory_per_worker": "4GB", "lost_after": "60s",
}  # fmt: skip


def certificate(begins, ends):
    """Return a certificate, signed by itself, that holds from and until so long from now."""
    key, name = generate_private_key(SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trellis")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 7, now + begins, now + ends)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def write_cluster_file(folder, **changes):
    """Write a cluster file with some keys changed, or left out where that is None, and the files that it names, unless they are there."""
    closed = {"home.key": b"private", "secret/mailbox.key": bytes(range(32))}
    for name in ("ca.pem", "home.pem", *closed):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            path.write_bytes(closed.get(name) or certificate(timedelta(days=-1), timedelta(days=90)))
            path.chmod(0o600)
    keys = {key: value for key, value in {**KEYS, **changes}.items() if value is not None}
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(keys))
    path.chmod(0o600)
    return path
