"""A mail server for the tests: it requires STARTTLS and AUTH and prints each received mail as a line of JSON.

    smtp.py CERTIFICATE KEY USER PASSWORD

The first line is the port. Python's own `email` takes the mails apart, so that what the test reads is what a mail program
would show.
"""

import asyncio
import email
import email.policy
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult


def say(value):
    print(json.dumps(value), flush=True)


class Received:
    async def handle_DATA(self, server, session, envelope):
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        say({
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "tls": session.ssl is not None,
            "user": getattr(session.auth_data, "login", b"").decode(),
            "subject": mail["subject"],
            "headers": {name.lower(): str(value) for name, value in mail.items()},
            "body": mail.get_content(),
        })
        return "250 taken"


async def main(certificate, key, user, password):
    def authenticate(server, session, envelope, mechanism, data):
        right = data.login == user.encode() and data.password == password.encode()
        return AuthResult(success=right, handled=False, auth_data=data)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    serve = lambda: SMTP(
        Received(), tls_context=context, require_starttls=True, auth_required=True, authenticator=authenticate,
        hostname="localhost",
    )
    server = await asyncio.get_running_loop().create_server(serve, "127.0.0.1", 0)
    say(server.sockets[0].getsockname()[1])
    await server.serve_forever()


asyncio.run(main(*sys.argv[1:]))
