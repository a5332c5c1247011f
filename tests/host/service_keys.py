"""Keys in the shapes that services give theirs, made at run time: no scanner takes them for real ones."""

from __future__ import annotations

import random
import re
import string

ALPHABETS = {
    "A": string.ascii_letters + string.digits,
    "h": "0123456789abcdef",
    "U": string.ascii_uppercase + string.digits,
    "l": string.ascii_lowercase + string.digits,
    "d": string.digits,
    "u": string.ascii_letters + string.digits + "_-",
    "b": string.ascii_letters + string.digits + "+/",
}

SHAPES = {
    "AWS id": "AKIA{U16}", "AWS temporary id": "ASIA{U16}", "AWS secret": "{A13}/{A6}/{A19}", "AWS session": "IQoJb3JpZ2luX2VjE{b120}==",
    "Google API": "AIza{u35}", "Google OAuth": "ya29.{u60}", "Google client secret": "GOCSPX-{u28}", "Azure storage": "{b86}==",
    "Azure client secret": "{A3}8Q~{u34}", "Azure DevOps": "{l52}", "Cloudflare": "{u40}", "DigitalOcean": "dop_v1_{h64}", "Heroku": "HRKU-{h8}-{h4}-{h4}-{h4}-{h12}",
    "Fly": "fo1_{u43}", "Netlify": "nfp_{A40}", "Vercel": "{A24}", "Linode": "{h64}", "Alibaba": "LTAI{A20}", "Tencent": "AKID{A32}",
    "GitHub": "ghp_{A36}", "GitHub OAuth": "gho_{A36}", "GitHub server": "ghs_{A36}", "GitHub fine": "github_pat_{A22}_{A59}",
    "GitLab": "glpat-{u20}", "GitLab runner": "glrt-{u20}", "GitLab CI": "glcbt-64_{u20}", "Bitbucket": "ATBB{A32}", "Atlassian": "ATATT3xFfGF0{u180}",
    "Docker": "dckr_pat_{u27}", "npm": "npm_{A36}", "PyPI": "pypi-AgEIcHlwaS5vcmc{u90}", "RubyGems": "rubygems_{h48}", "Artifactory": "AKCp{A69}", "conda": "{l2}-{h8}-{h4}-{h4}-{h4}-{h12}",
    "Hugging Face": "hf_{A34}", "Hugging Face organisation": "api_org_{A34}", "OpenAI": "sk-{A20}T3BlbkFJ{A20}", "OpenAI project": "sk-proj-{u74}", "Anthropic": "sk-ant-api03-{u93}",
    "Groq": "gsk_{A52}", "Replicate": "r8_{A37}", "Perplexity": "pplx-{A48}", "xAI": "xai-{A80}", "Cohere": "{A40}", "Mistral": "{A32}", "Together": "{h64}", "Fireworks": "fw_{A22}",
    "OpenRouter": "sk-or-v1-{h64}", "LangSmith": "lsv2_pt_{h32}_{h10}", "Pinecone": "pcsk_{A6}_{A60}", "W&B": "{h40}", "W&B new": "wandb_v1_{u60}", "Comet": "{A25}", "Kaggle": "{h32}", "NGC": "nvapi-{u64}",
    "NGC old": "{A84}", "ClearML": "{U30}", "Neptune": "eyJhcGlfYWRkcmVzcyI6{b80}==", "MLflow Databricks": "dapi{h32}", "RunPod": "rpa_{U40}", "Lambda": "secret_{l32}_{l32}", "Modal": "ak-{A22}", "Vast": "{h64}",
    "Slack bot": "xoxb-{d11}-{d12}-{A24}", "Slack app": "xapp-1-A{U10}-{d13}-{h64}", "Discord": "{A26}.{A6}.{u38}", "Telegram": "{d10}:AA{u33}", "Twilio": "SK{h32}", "SendGrid": "SG.{u22}.{u43}",
    "Mailgun": "key-{h32}", "Mailchimp": "{h32}-us12", "Postmark": "{h8}-{h4}-{h4}-{h4}-{h12}",
    "Stripe": "sk_live_{A24}", "Stripe restricted": "rk_live_{A24}", "Square": "sq0atp-{u22}", "Shopify": "shpat_{h32}", "PayPal": "access_token$production${l16}${h32}",
    "Vault": "hvs.{u90}", "Doppler": "dp.pt.{A43}", "1Password": "ops_eyJ{u80}", "age": "AGE-SECRET-KEY-1{U58}", "Terraform": "{A14}.atlasv1.{u67}", "Pulumi": "pul-{h40}",
    "Datadog": "{h32}", "New Relic": "NRAK-{U27}", "Sentry": "sntrys_{b80}", "Grafana": "glsa_{A32}_{h8}", "Grafana cloud": "glc_{b60}=", "PagerDuty": "u+{u18}", "Honeycomb": "hcaik_{l58}",
    "Linear": "lin_api_{A40}", "Notion": "ntn_{A43}", "Airtable": "pat{A14}.{h64}", "Figma": "figd_{u40}", "Postman": "PMAK-{h24}-{h34}", "Tailscale": "tskey-auth-{A12}-{A32}", "ngrok": "{A27}_{A21}",
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJ{u40}.{u43}", "basic auth": "dXNlcjp{b30}=", "WireGuard": "{b43}=", "SSH": "-----BEGIN OPENSSH PRIVATE KEY-----{b200}-----END OPENSSH PRIVATE KEY-----",
}  # fmt: skip
_PART = re.compile(r"\{([A-Za-z])(\d+)\}")


def keys(seed: int = 0) -> dict[str, str]:
    """One key of each service, of letters and digits mixed as chance mixes them."""
    chance = random.Random(seed)

    def part(match: re.Match[str]) -> str:
        return "".join(chance.choices(ALPHABETS[match[1]], k=int(match[2])))

    return {name: _PART.sub(part, shape) for name, shape in SHAPES.items()}
