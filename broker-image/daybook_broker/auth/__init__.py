"""Who a client is, and what it may do: nobody is asked unless the settings say so.

In reading order:

    tokens    JWTs and the key that they are checked with
    access    identities from tokens and certificates, and the permissions of namespaces
    http      the same for the admin HTTP: which operation a request is
"""
