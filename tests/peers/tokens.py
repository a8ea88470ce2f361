"""Makes embed tokens with PyJWT, valid ones and common mistakes. Prints JSON on standard output.

    python3 tokens.py keys FOLDER            makes key pairs, prints {alg: {pem}}, keeps the private ones
    python3 tokens.py tokens FOLDER GIVEN    prints {name: token}; GIVEN is {org, hs: {kid, secret}, EdDSA: {kid}, ...}
"""

import datetime
import hashlib
import hmac
import json
import pathlib
import sys
import time

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

step, folder = sys.argv[1], pathlib.Path(sys.argv[2])
ALGORITHMS = {
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "RS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
}

if step == "keys":
    shown = {}
    for alg, generate in ALGORITHMS.items():
        private = generate()
        pem = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / f"pyjwt-{alg}.pem").write_bytes(pem)
        public = private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        shown[alg] = {"pem": public.decode()}
    print(json.dumps(shown))
    sys.exit(0)

given = json.loads(sys.argv[3])
org, kid, secret = given["org"], given["hs"]["kid"], given["hs"]["secret"]
now = int(time.time())
plain = {"aud": "ms-embed", "org": org, "iat": now, "exp": now + 600, "ms": {"match": ['customer="c42"']}}


def token(key=secret, algorithm="HS256", headers=None, without=(), **changes):
    """As documented, except for the changes."""
    claims = {name: value for name, value in {**plain, **changes}.items() if name not in without}
    return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": kid} if headers is None else headers)


def b64(data):
    return jwt.utils.base64url_encode(data).decode()


def by_hand(key, headers):
    """HS256 with a key that PyJWT refuses."""
    message = b64(json.dumps({"alg": "HS256", "typ": "JWT", **headers}).encode()) + "." + b64(json.dumps(plain).encode())
    return message + "." + b64(hmac.new(key, message.encode(), hashlib.sha256).digest())


utc = datetime.timezone.utc
tokens = {
    "good_HS256": token(),
    "good_dates": token(
        iat=datetime.datetime.now(utc), exp=datetime.datetime.now(utc) + datetime.timedelta(minutes=10)
    ),
    "good_fractions": token(iat=time.time(), exp=time.time() + 600.5),
    "good_many_audiences": token(aud=["other", "ms-embed"]),
    "good_whole_organisation": token(without=("ms",)),
    "no_kid": token(headers={}),
    "kid_unknown": token(headers={"kid": "ak_aaaaaaaaaaaaaaaa"}),
    "kid_is_a_path": token(headers={"kid": "../../" + kid}),
    "critical": token(headers={"kid": kid, "crit": ["exp"]}),
    "key_in_header": token(headers={"kid": kid, "jku": "http://127.0.0.1:1/", "jwk": {"kty": "oct", "k": "AAAA"}}),
    "certificate_in_header": token(headers={"kid": kid, "x5c": ["AAAA"]}),
    "no_audience": token(without=("aud",)),
    "other_audience": token(aud="ms_embed"),
    "no_organisation": token(without=("org",)),
    "other_organisation": token(org="other"),
    "no_expiry": token(without=("exp",)),
    "no_issued_at": token(without=("iat",)),
    "milliseconds": token(exp=(now + 600) * 1000),
    "local_time_far_ahead": token(iat=now + 2 * 3600, exp=now + 2 * 3600 + 600),
    "expired": token(iat=now - 700, exp=now - 100),
    "backwards": token(exp=now - 10, iat=now - 5),
    "not_yet": token(nbf=now + 300),
    "issuer_is_a_name": token(iss="dashboard"),
    "typo": token(ms={"metric": ["http_*"]}),
    "restriction_is_a_list": token(ms=["customer=\"c42\""]),
    "restriction_null": token(ms=None),
    "matcher_is_a_dictionary": token(ms={"match": {"customer": "c42"}}),
    "other_secret": token(key=secret[:-1] + "!"),
    "HS384": token(algorithm="HS384"),
    "unsigned": token(key=None, algorithm="none"),
}
for alg in ALGORITHMS:
    private = (folder / f"pyjwt-{alg}.pem").read_bytes()
    own = {"kid": given[alg]["kid"]}
    tokens[f"good_{alg}"] = token(key=private, algorithm=alg, headers=own)
    tokens[f"foreign_{alg}"] = token(key=ALGORITHMS[alg](), algorithm=alg, headers=own)
    tokens[f"kid_of_another_{alg}"] = token(key=private, algorithm=alg)
    tokens[f"confused_{alg}"] = by_hand(given[alg]["pem"].encode(), own)
    tokens[f"confused_trimmed_{alg}"] = by_hand(given[alg]["pem"].strip().encode(), own)
print(json.dumps(tokens))
