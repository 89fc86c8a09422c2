"""The table of what is a secret by its look: shapes of keys and shapes of values, each with examples that the tests
take from here.

A key's shape is searched in the whole key, whose words `_` separates (`signingKey` is `signing_Key`), without regard to
case. Of a value's shape the group `secret` is hidden and the rest stays. Each begins with fixed text and hardly turns
back, so that a page of megabytes costs milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SecretShape:
    """A regular expression, and what has this shape; in an example of a value the secret is between ⟨ and ⟩."""

    pattern: str
    examples: tuple[str, ...]


# What a key is for, before the word key: `signingKey`, `encryption_key`, `client-key-data`. A `primary_key`, a
# `partition.key` and the `key` of a record are none.
_KEY_OF = (
    r"access|account|admin|aes|api|app|application|auth|aws|azure|cipher([._-]?data)?|client|crypto|customer"
    r"|data[._-]?encryption|decrypt|decryption"
    r"|deploy|dsa|ec|ecdsa|encrypt|encryption|gcp|gpg|hmac|integration|jwt|keystore|kms|license|mac|master|pgp|root"
    r"|rsa|sas|server|service"
    r"|session|shared|sign|signing|ssh|ssl|storage|subscription|symmetric|tls|unlock|vault|webhook|wrapping|x509"
)

_QUOTE = r"\\{0,4}[\"']|&(?:quot|apos|#34|#39|#x22|#x27);"

KEYS = (
    SecretShape(r"passw(or)?d", ("ssl.key.password", "transforms.x.passwd", "source.cluster.ssl.truststore.password")),
    SecretShape(r"passphrase|passcode", ("sasl.oauthbearer.assertion.private.key.passphrase", "door.passcode")),
    SecretShape(r"pwd|(?<![a-z])(pw|pass|psw|psswd)(?![a-z])", ("db.pwd", "ssl.key.pass", "x_pw")),
    SecretShape(r"secret(?!_name$)", ("client.secret", "aws_secret_access_key", "clientSecret")),
    SecretShape(r"credential", ("gcp.credentials", "basic.auth.credentials", "X-Amz-Credential")),
    SecretShape(r"jaas", ("sasl.jaas.config", "target.cluster.sasl.jaas.config")),
    SecretShape(r"private", ("x.private.key", "privateKey", "private_key_id")),
    SecretShape(r"token(?!\.endpoint|_?auth)", ("oauth.access.token", "sasToken", "refresh_token")),
    SecretShape(r"(?<!oauth)(?<!oauth_)bearer", ("bearer", "auth.bearer")),
    SecretShape(r"user[._]?info", ("basic.auth.user.info", "schema.registry.basic.auth.user.info")),
    SecretShape(
        r"(basic|http|cloud)[._-]?auth$", ("basic.auth", "schema.registry.basic.auth", "httpAuth", "elastic.cloud.auth")
    ),
    SecretShape(r"(?<![a-z])(jwt|sas|fernet|cookies?)$", ("x.jwt", "connection.sas", "http.cookie", "fernet")),
    SecretShape(r"^(proxy-)?authorization$|^(set-)?cookie2?$", ("Authorization", "Proxy-Authorization", "Set-Cookie")),
    SecretShape(
        r"api[._-]?key|access[._-]?key(?!_name)",
        ("x.api.key", "X-Api-Key", "apikey", "AWS_ACCESS_KEY_ID", "SharedAccessKey"),
    ),
    SecretShape(
        r"(?<!partition)(?<!message)(?<!record)(?<!primary)(?<!foreign)(?<!public)(?<!sort)(?<!routing)\.key$",
        ("ssl.keystore.key", "server.key", "tls.key", "transforms.encrypt.key"),
    ),
    SecretShape(
        rf"(?<![a-z])({_KEY_OF})[._-]?keys?$",
        (
            *(
                *("signingKey", "encryption_key", "master_key", "account_key", "AccountKey", "x.signing.keys"),
                *("requestSigningKey", "s3.sse_customer_key"),
            ),
            *("storage-account-key", "transforms.cipher.cipher_data_keys", "serverKey", "sshKey"),
        ),
    ),
    SecretShape(
        r"(?<!public[._-])(?<![a-z])key[._-]?(data|material|pem|base64|b64|bytes|contents?)$",
        ("client-key-data", "ssl.key.pem", "key_material", "serverKeyPem", "tls.key.base64"),
    ),
    SecretShape(r"(?<=[._-])license(\.key)?$", ("confluent.license", "vendor.license.key")),
    SecretShape(
        r"(oauth|client)([._-]client)?[._-]assertion$",
        ("oauth.assertion", "oauth.client.assertion", "client_assertion"),
    ),
    SecretShape(r"(?<![a-z])sig(nature)?$", ("sig", "X-Amz-Signature", "X-Goog-Signature")),
    SecretShape(
        r"connection[._-]?string$", ("azure.connection.string", "ConnectionString", "storage_connection_string")
    ),
    SecretShape(
        r"webhook([._-]?ur[il])?$|slack[._-]?(api[._-]?)?ur[il]$", ("webhook", "teams_webhook_url", "slack_api_url")
    ),
    SecretShape(r"docker(config(json)?|cfg)$|kubeconfig$", ("dockerconfigjson", "kubeconfig")),
)

VALUES = (
    SecretShape(
        r"(?P<secret>-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?:"
        r" BLOCK)?-----|\Z))",
        (
            "cannot read ⟨-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\n-----END PRIVATE KEY-----⟩",
            "⟨-----BEGIN ENCRYPTED PRIVATE KEY-----\\nMIIE6TAbBgkqhkiG⟩",
            "⟨-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQOYBF\n-----END PGP PRIVATE KEY BLOCK-----⟩ of the backup",
        ),
    ),
    SecretShape(
        r"(?<![\w-])(?P<secret>eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?)",
        ("token ⟨eyJhbGciOiJIUzI1NiJ9.aHVudGVyMg.c2lnbmF0dXJl⟩ has expired",),
    ),
    # user and password of a URL, whatever the password holds; `host:port/path@…` is none, unless a host follows the @
    SecretShape(
        r":(?:\\{0,4}/){2}(?P<secret>[^\s/\\\"'<>]*|[^\s/\\\"'<>:@]*+:(?!\d{1,5}<)[^\s/\\\"']*)@",
        (
            *("http://⟨app:a<b>c⟩@worker:8083", "GET http://⟨app:hunter2⟩@worker:8083/connectors failed"),
            *("http://⟨app:p@ss⟩@worker:8083", "http://⟨app:p:ss%2F⟩@worker", r"http:\/\/⟨app:hunter2⟩@worker"),
            "http://⟨ghtoken⟩@worker/",
        ),
    ),
    SecretShape(
        r":(?:\\{0,4}/){2}(?P<secret>[^\s/\\\"'<>:@]*:(?!\d{1,5}(?:[/?#]|\\/))(?:[^\s\"'<>:]|:(?!(?:\\{0,4}/){2}))*)@",
        (
            "http://⟨app:pa/ss⟩@worker:8083 refused",
            "jdbc:postgresql://⟨app:/slash/first⟩@db/orders",
            "https://⟨app:a/b@c?d#e⟩@worker/",
            r"https://⟨app:a\b⟩@worker/",
        ),
    ),
    SecretShape(
        r":(?:\\{0,4}/){2}(?P<secret>[^\s/\\\"'<>:@]*:\d{1,5}[/?#][^\s\"'<>@:/]*)@(?=[\w.-]+:\d|localhost\b"
        r"|[\w-]+\.[\w.-]+)",
        ("http://⟨app:123/45⟩@worker:8083/connectors", "http://⟨app:9092/x⟩@worker.example/"),
    ),
    SecretShape(
        r"\bjdbc:oracle:\w{1,10}:[^\s/@\"']*/(?P<secret>[^\s@\"']+)@",
        ("jdbc:oracle:thin:app/⟨hunter/2⟩@db.example:1521/orders", "jdbc:oracle:oci:app/⟨hunter2⟩@orders"),
    ),
    # a login on a command line, and before a host without a scheme; `User:me@REALM`, `team:me@example.com` and
    # `tag@sha256:…` are none
    SecretShape(
        r"\bcurl\b[^\n]{0,300}?\s(?:-\w{0,8}[uU]|--(?:proxy-)?user)[\s=]{0,3}"
        rf"(?:(?P<q>{_QUOTE})[^:\"'\n]{{1,100}}:|(?:{_QUOTE})?[^\s:\"'$\\]{{1,100}}(?:{_QUOTE})?:(?:{_QUOTE})?)"
        r"(?P<secret>(?!\\{0,4}\$[{\w(])(?(q)[^\n]{1,200}?(?=(?P=q)|\n|\Z)|[^\s\"'|;&]{1,200}))",
        (
            "curl -u app:⟨hunter2⟩ https://worker:8083/connectors",
            "curl -fsS -X POST -u 'app:⟨hun ter2⟩' http://worker:8083/",
            *('sh -c "curl -su app:⟨hunter2⟩ http://worker:8083/"', "curl --user app:⟨12345⟩ http://worker:8083/"),
            *("curl -u app:'⟨hunter2⟩' http://worker:8083/", "curl --user 'app':'⟨hunter2⟩' http://worker:8083/"),
            "curl http://worker:8083/ --user=app:⟨hunter2⟩ -o x.json",
            "curl --proxy-user app:⟨hunter2⟩ -U x http://worker/",
        ),
    ),
    SecretShape(
        r"(?<![\w:./@%+$-])(?!(?i:user|group|principal|mailto|e?mail|owner|contact|author|team|by|cc|from|to):)"
        r"[A-Za-z_][\w.-]{0,63}:(?!\d{1,5}@|\d+(?:\.\d+)+@)"
        r"(?=[^\s@]{1,128}@(?:[A-Za-z][\w.-]{0,252}|\d{1,3}(?:\.\d{1,3}){3}|\[[\da-fA-F:]{2,40}\]):\d{1,5}(?!\w)"
        r"|[^\s@\d!#$%^*+~?]{0,127}[\d!#$%^*+~?][^\s@]{0,127}@(?![\da-f]{5,64}\b)"
        r"[A-Za-z][\w-]{0,62}(?:\.[\w-]{1,63}){0,8}(?![\w:@.-]))"
        r"(?P<secret>[^\s:/@,;\"'<>()\[\]{}\\|=&]{1,128})@",
        (
            *("app:⟨hunter2⟩@worker:8083 refused", "connecting to app:⟨secret⟩@10.0.0.1:9092"),
            *("login=app:⟨p4ss⟩@worker", "replica of app:⟨S3cret!⟩@db.example/orders", "app:⟨hunter⟩@[fe80::1]:5432"),
        ),
    ),
    # XML, also as an HTML page shows it
    SecretShape(
        r"(?:(?P<raw><)|&lt;)[\w.:-]{0,60}?(?i:passw(?:or)?d|passphrase|pwd|secret|token|api[._-]?key"
        r"|private[._-]?key)\d{0,2}(?:\s(?:(?!&gt;)[^<>]){0,200})?(?:>|&gt;)"
        r"\s*+(?:(?:<|&lt;)!\[CDATA\[)?(?P<secret>(?!\$\{)(?:(?!\]\]|\s{1,99}<)(?(raw)|(?!&lt;))[^<>])+)",
        (
            "<user>app</user><password>⟨hunter2⟩</password>",
            "<ns:keyStorePassword xsi:type='x'>⟨hunter2⟩</ns:keyStorePassword>",
            *("<clientSecret>\n  ⟨hunter2⟩\n</clientSecret>", "<password><![CDATA[⟨hunter2⟩]]></password>"),
            *("<server><id>nexus</id><Password>⟨hunter2⟩</Password></server>", "<Password>⟨a&lt;b⟩</Password>"),
        ),
    ),
    # webhooks: who has the address may write
    SecretShape(
        r"\bhooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/(?P<secret>[^\s\"'<>]+)",
        ("https://hooks.slack.com/services/⟨T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX⟩",),
    ),
    SecretShape(
        r"\b(?:webhook\.office\.com/webhookb2|outlook\.office(?:365)?\.com/webhook)/(?P<secret>[^\s\"'<>]+)",
        (
            "https://team.webhook.office.com/webhookb2/⟨0a1b2c3d-aaaa@1b2c/IncomingWebhook/ffee/0000⟩",
            "https://outlook.office.com/webhook/⟨0a1b2c3d⟩",
        ),
    ),
    SecretShape(
        r"\bdiscord(?:app)?\.com/api/(?:v\d+/)?webhooks/(?P<secret>[^\s\"'<>]+)",
        (
            "https://discord.com/api/webhooks/⟨1234567890/AbC-dEf_123⟩",
            "https://discordapp.com/api/v10/webhooks/⟨1/xyz⟩",
        ),
    ),
    SecretShape(
        r"\bapi\.telegram\.org/bot(?P<secret>[^\s\"'<>/]+)",
        ("https://api.telegram.org/bot⟨1234:AAbbCC-dd⟩/sendMessage",),
    ),
    SecretShape(
        r"://[^\s/\"'<>]+/(?:[\w.~-]+/){0,4}?(?:web-?)?hooks?/(?P<secret>(?=[^\s\"'<>]{0,200}?\d)[^\s\"'<>]{12,})",
        ("https://chat.example/hooks/⟨9f8e7d6c5b4a39281706⟩", "https://ops.example/api/v1/webhook/⟨team/ab12cd34ef56⟩"),
    ),
    # tokens that tell by their first letters who issued them
    SecretShape(
        r"\b(?P<secret>gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_\w{16,})",
        (
            "remote: ⟨ghp_16C7e42F292c6912E7710c838347Ae178B4a⟩ is revoked",
            *("⟨gho_16C7e42F292c6912E7710c838347Ae178B4a⟩", "⟨ghs_16C7e42F292c6912E7710c838347Ae178B4a⟩"),
            "⟨github_pat_11ABCDEFG0123456789_abcdefghij⟩",
        ),
    ),
    SecretShape(
        r"\b(?P<secret>gl(?:agent|cbt|dt|ft|imt|oas|pat|ptt|rt|soat)-[\w-]{16,})",
        ("⟨glpat-AbCdEf0123456789xyz_⟩", "⟨glrt-AbCdEf0123456789xyz_⟩"),
    ),
    SecretShape(
        r"\b(?P<secret>xox[a-z](?:\.xox[a-z])?-[\w-]{10,}|xapp-\d-[\w-]{10,})",
        (
            "⟨xoxb-123456789012-abcdefABCDEF⟩ was refused",
            "⟨xoxp-123456789012-abcdefABCDEF⟩",
            "⟨xapp-1-A0123456789-12345⟩",
        ),
    ),
    SecretShape(
        r"\b(?P<secret>(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16})\b",
        ("user ⟨AKIAIOSFODNN7EXAMPLE⟩ of account 12", "⟨ASIAIOSFODNN7EXAMPLE⟩"),
    ),
    SecretShape(
        r"\b(?P<secret>AIza[\w-]{30,}|ya29\.[\w-]{16,}|GOCSPX-[\w-]{16,})",
        ("⟨AIzaSyA1234567890abcdefghijklmnopqrstuvw⟩", "⟨ya29.a0AfH6SMBx1234567890⟩", "⟨GOCSPX-1234567890abcdefghij⟩"),
    ),
    SecretShape(
        r"(?<![\w-])(?P<secret>sk-(?=[\w-]{0,200}?\d)(?=[\w-]{0,200}?[A-Z])[\w-]{20,}|[prs]k_(?:live"
        r"|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{16,})",
        (
            *("⟨sk-proj-AbCdEf0123456789AbCdEf⟩", "⟨sk_live_AbCdEf0123456789⟩", "⟨rk_test_AbCdEf0123456789⟩"),
            "⟨whsec_AbCdEf0123456789xyz⟩",
        ),
    ),
    SecretShape(
        r"\b(?P<secret>npm_[A-Za-z0-9]{30,}|pypi-AgE[\w-]{20,}|hf_[A-Za-z]{30,}|do[opr]_v1_[a-f0-9]{32,}"
        r"|dapi[a-f0-9]{32})",
        (
            *("⟨npm_abcdefghijklmnopqrstuvwxyz0123456789⟩", "⟨pypi-AgEIcHlwaS5vcmcCJDAwMDAwMDAw⟩"),
            *("⟨hf_abcdefghijklmnopqrstuvwxyzABCDEFGH⟩", "⟨dop_v1_0123456789abcdef0123456789abcdef⟩"),
            "⟨dapi0123456789abcdef0123456789abcdef⟩",
        ),
    ),
    SecretShape(
        r"\b(?P<secret>hv[bsr]\.[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"
        r"|gls?[ac]_[A-Za-z0-9+/=_]{20,}|AVNS_[\w-]{12,})",
        (
            *("⟨hvs.CAESIAbCdEf0123456789xyzABC⟩", "⟨SG.AbCdEf0123456789xyzA.AbCdEf0123456789xyzA⟩"),
            *("⟨glsa_AbCdEf0123456789xyzA_01234567⟩", "⟨AVNS_AbCdEf0123456789⟩"),
        ),
    ),
)
