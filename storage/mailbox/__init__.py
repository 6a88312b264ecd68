"""The mailbox of a cluster: a folder or a bucket through which home and workers pass files that are encrypted or sealed."""
