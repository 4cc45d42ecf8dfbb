"""Every option of a create that this version of the package has. The server refuses what it does not know, so another
version that brings one more fails here, and not at somebody who uses it."""
import inspect
import json
import logging
import os

import attrs
from e2b import Sandbox, Volume
from e2b.api.client.models import NewSandboxV2
from e2b.api.client.types import UNSET
from support import Unboxed, ask, unique

NETWORK = {'allowPublicTraffic': True, 'allowOut': ['example.com'], 'denyOut': ['0.0.0.0/0'], 'maskRequestHost': 'a.example:${PORT}',
           'httpsPorts': [8443], 'rules': {'example.com': [{'transform': {'headers': {'X-Test': 'x'}}}]}}
BODY = {'templateID': 'base', 'timeout': 60, 'autoPause': True, 'autoPauseMemory': True, 'autoResume': {'enabled': True},
        'allow_internet_access': True, 'network': NETWORK, 'metadata': {'k': 'v'}, 'envVars': {'K': 'v'}, 'mcp': {},
        'iam': {'tokens': {}}}
# docs/e2b.md: not offered, and what is not enforced must not look as if it were.
REFUSED = {'network.dns_servers': {'dnsServers': ['1.1.1.1']}, 'network.egress_proxy': {'egressProxy': {'address': '1.1.1.1:1080'}}}
OPTIONS = {'template', 'timeout', 'metadata', 'envs', 'secure', 'allow_internet_access', 'mcp', 'network', 'iam', 'lifecycle',
           'volume_mounts', 'logger', 'idempotency_key', 'opts'}


def unset(model, path=''):
    """The members that nothing was given for, at any depth; what the package does not know counts as one."""
    for field in attrs.fields(type(model)):
        value = getattr(model, field.name)
        if value is UNSET:
            yield path + field.name
        for one in value if isinstance(value, list) else [value]:
            if attrs.has(type(one)):
                yield from unset(one, f'{path}{field.name}.')
    if len(attrs.fields(type(model))) > 1:  # else it is a map
        yield from (f'{path}{name} is not of the package' for name in model.additional_properties)


class Options(Unboxed):
    def volume(self):
        volume = Volume.create(unique('options'))
        self.addCleanup(Volume.destroy, volume.volume_id)
        return volume

    def create(self, body):
        headers = {'Content-Type': 'application/json', 'X-API-Key': os.environ['E2B_API_KEY']}
        status, answer = ask(os.environ['E2B_API_URL'] + '/v2/sandboxes', headers, 'POST', json.dumps(body))
        if status == 201:
            self.addCleanup(Sandbox.kill, json.loads(answer)['sandboxID'])
        return status, answer

    def test_every_member_of_the_request_is_taken(self):
        body = {**BODY, 'volumeMounts': [{'name': self.volume().name, 'path': '/data'}]}
        self.assertEqual(set(unset(NewSandboxV2.from_dict(body))), set(REFUSED))
        status, answer = self.create(body)
        self.assertEqual(status, 201, answer)
        for name, member in REFUSED.items():
            status, answer = self.create({**body, 'network': {**NETWORK, **member}})
            self.assertIn(status, (400, 403), name)
            self.assertIn(next(iter(member)).encode(), answer)

    def test_every_option_of_the_call_is_taken(self):
        self.assertEqual(set(inspect.signature(Sandbox.create).parameters), OPTIONS)
        network = {'allow_public_traffic': True, 'allow_out': ['example.com'], 'deny_out': lambda ctx: [ctx.all_traffic],
                   'mask_request_host': 'a.example:${PORT}', 'https_ports': [8443], 'rules': NETWORK['rules']}
        for lifecycle in ({'on_timeout': 'pause', 'auto_resume': True}, {'on_timeout': {'action': 'pause', 'mode': 'filesystem'}},
                          {'on_timeout': {'action': 'pause', 'keep_memory': True}}, {'on_timeout': 'kill'}):
            box = self.make('base', timeout=60, metadata={'k': 'v'}, envs={'K': 'v'}, secure=True, allow_internet_access=True,
                            network=network, iam={'tokens': {}}, lifecycle=lifecycle, volume_mounts={'/data': self.volume()},
                            logger=logging.getLogger('options'), idempotency_key=unique('options').replace('_', '-'))
            self.assertEqual(box.commands.run('echo $K').stdout, 'v\n')
