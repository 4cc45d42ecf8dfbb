"""Header rules: what is added to requests on their way out, so that a secret never enters a sandbox."""
import json
import time
import unittest

from harness.internet import ECHO
from test_egress import Case
from test_network import ALL, ONE, TWO

SECRET = 'sk-0123456789-very-secret'


def rules(**hosts):
    """allowed_example={'X': 'y'} becomes the rules of allowed.example."""
    return {host.replace('_', '.'): [{'transform': {'headers': headers}}] for host, headers in hosts.items()}


class Rules(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.secrets = 0

    def secret(self, box, value=SECRET):
        """A new one of the team; its name."""
        Rules.secrets += 1
        name = f'KEY_{Rules.secrets}'
        box.api('POST', '/secrets', {'name': name, 'value': value})
        return name

    def get(self, box, url, *options):
        """As a program does that knows nothing of all this: with the sandbox's own trust."""
        return box.run(f"curl -sS -m 30 {' '.join(options)} '{url}' 2>&1").text()

    def headers(self, path='/'):
        """Of the request that arrived last."""
        arrived = [one for one in self.seen('http') if one['path'] == path]
        self.assertTrue(arrived, 'nothing arrived')
        return {name.lower(): value for name, value in arrived[-1]['headers'].items()}

    def ruled(self, headers, **network):
        return self.box(network={'rules': rules(allowed_example=headers), **network})

    def test_headers_are_added_and_the_secret_stays_outside(self):
        name = self.secret(self.box())
        box = self.ruled({'Authorization': f'Bearer ${{e2b.secrets.{name}}}', 'X-Plain': 'yes'})
        self.assertIn(ONE, self.get(box, 'https://allowed.example/a'))
        got = self.headers('/a')
        self.assertEqual((got['authorization'], got['x-plain']), (f'Bearer {SECRET}', 'yes'))
        self.assertEqual(got['host'], 'allowed.example')
        inside = box.run("env; cat /etc/ssl/certs/*.crt /proc/*/environ 2>/dev/null; grep -rs very-secret /etc /run "
                         "/usr/local /home /tmp", 'root').text()
        self.assertNotIn('very-secret', inside)
        self.assertNotIn('very-secret', self.server.log.read_text())
        info = json.dumps(box.api('GET', f'/sandboxes/{box.id}'))
        self.assertIn(f'e2b.secrets.{name}', info)
        self.assertNotIn('very-secret', info)

    def test_what_the_program_sends_under_that_name_is_replaced(self):
        box = self.ruled({'Authorization': 'ours'})
        for wrong in ('Authorization: mine', 'AUTHORIZATION: mine', 'authorization;'):
            self.get(box, 'https://allowed.example/', '-H', f"'{wrong}'")
            arrived = self.seen('http')[-1]['headers']
            self.assertEqual([v for k, v in arrived.items() if k.lower() == 'authorization'], ['ours'])

    def test_every_request_of_a_connection_gets_them(self):
        box = self.ruled({'X-Rule': 'r'})
        self.get(box, 'https://allowed.example/2', '-d', 'body', 'https://allowed.example/1')
        self.assertEqual([(one['path'], one['headers'].get('X-Rule'), one['body']) for one in self.seen('http')],
                         [('/1', 'r', 'body'), ('/2', 'r', 'body')])

    def test_other_hosts_and_plain_http_get_nothing(self):
        box = self.ruled({'X-Rule': 'r'})
        self.curl(box, 'https://other.example/')
        self.get(box, 'http://allowed.example/')
        seen = self.seen('http')
        self.assertEqual([one['address'] for one in seen], [TWO, ONE])
        self.assertNotIn('X-Rule', seen[0]['headers'])
        self.assertNotIn('X-Rule', seen[1]['headers'])
        self.assertEqual(self.evade(box, 'raw', TWO, str(ECHO)), TWO)
        self.assertEqual(self.evade(box, 'raw', TWO, '13'), 'tick')

    def test_hellos_that_cost_us_a_signature_are_few(self):
        box = self.ruled({'X-Rule': 'r'})
        answered, seconds = map(float, self.evade(box, 'greet', 'allowed.example', '500').split())
        self.assertGreater(answered, 100)
        self.assertLess(answered, 250 + 50 * seconds)  # so many at once, and so many more each second
        time.sleep(1)
        self.assertIn(ONE, self.get(box, 'https://allowed.example/'))

    def test_hosts_below_and_the_closest_rule(self):
        box = self.box(network={'rules': {'*.wild.example': [{'transform': {'headers': {'X-Rule': 'wide'}}}],
                                          'a.wild.example': [{'transform': {'headers': {'X-Rule': 'exact'}}}]}})
        self.get(box, 'https://a.wild.example/')
        self.assertEqual(self.headers()['x-rule'], 'exact')

    def test_common_programs_trust_it(self):
        box = self.ruled({'X-Rule': 'r'})
        node = ("node -e \"require('https').get('https://allowed.example/', r => {r.resume(); "
                "console.log(r.statusCode)}).on('error', e => console.log(e.message))\"")
        python = "python3 -c \"import urllib.request as u; print(u.urlopen('https://allowed.example/').status)\""
        openssl = 'openssl s_client -connect allowed.example:443 -servername allowed.example </dev/null 2>&1'
        self.assertEqual(box.run(node).text().strip(), '200')
        self.assertEqual(box.run(python).text().strip(), '200')
        self.assertIn('Verify return code: 0', box.run(openssl).text())
        self.assertEqual([one['headers'].get('X-Rule') for one in self.seen('http')], ['r', 'r'])

    def test_without_rules_nobody_is_trusted_besides(self):
        box = self.box()
        self.assertEqual(box.run('ls /usr/local/share/ca-certificates; echo $NODE_EXTRA_CA_CERTS').text().strip(), '')

    def test_another_host_inside_is_misdirected(self):
        box = self.ruled({'X-Rule': 'r'})
        for host in ('other.example', 'allowed.example.other.example', ''):
            told = self.get(box, 'https://allowed.example/', '-H', f"'Host: {host}'", '-w', "'%{http_code}'")
            self.assertRegex(told, '4(21|00)$', host)
        self.assertEqual(self.seen('http'), [])

    def test_http2_alone_is_refused_and_trace_too(self):
        box = self.ruled({'X-Rule': 'r'})
        told = box.run('openssl s_client -alpn h2 -connect allowed.example:443 -servername allowed.example '
                       '</dev/null 2>&1').text()
        self.assertIn('no application protocol', told)
        self.assertIn('405', self.get(box, 'https://allowed.example/', '-X', 'TRACE', '-w', "'%{http_code}'"))
        self.assertEqual(self.seen('http'), [])

    def test_a_missing_or_unfit_secret_is_named_and_nothing_is_sent(self):
        box = self.ruled({'X-Rule': '${e2b.secrets.NOT_THERE}'})
        told = self.get(box, 'https://allowed.example/', '-w', "'%{http_code}'")
        self.assertIn("secret 'NOT_THERE' does not exist", told)
        self.assertTrue(told.endswith('502'))
        name = self.secret(box, 'line\r\nX-Smuggled: yes')
        box.put(rules=rules(allowed_example={'X-Rule': f'${{e2b.secrets.{name}}}'}))
        self.assertIn('cannot stand in a header', self.get(box, 'https://allowed.example/'))
        self.assertEqual(self.seen('http'), [])

    def test_headers_of_a_request_that_failed_are_not_those_of_the_next(self):
        name = self.secret(self.box())
        box = self.ruled({'X-Rule': f'${{e2b.secrets.{name}}}'})
        box.run('setsid python3 /tmp/evade.py twice allowed.example 444 >/tmp/told 2>&1 </dev/null & '
                'for i in $(seq 1200); do grep -q . /tmp/told && break; sleep 0.05; done')
        box.api('DELETE', f'/secrets/{name}')
        box.run('touch /tmp/go; for i in $(seq 1200); do [ $(wc -l </tmp/told) = 2 ] && break; sleep 0.05; done')
        first, second = box.run('cat /tmp/told').text().splitlines()
        self.assertIn('the host was not reached', first)
        self.assertIn(f"secret '{name}' does not exist", second)

    def test_a_new_version_of_a_secret_holds_from_the_next_request_on(self):
        box = self.box()
        name = self.secret(box, 'first')
        box.put(rules=rules(allowed_example={'X-Rule': f'a ${{e2b.secrets.{name}}} b'}))
        self.get(box, 'https://allowed.example/')
        self.assertEqual(self.headers()['x-rule'], 'a first b')
        box.api('POST', f'/secrets/{name}', {'value': 'second'})
        self.get(box, 'https://allowed.example/')
        self.assertEqual(self.headers()['x-rule'], 'a second b')

    def test_a_host_that_is_not_who_it_says_gets_no_secret(self):
        box = self.box(network={'rules': rules(wild_example={'X-Rule': SECRET})})
        told = self.get(box, 'https://wild.example/', '-w', "'%{http_code}'")
        self.assertIn('the certificate of wild.example is not trusted', told)
        self.assertEqual(self.seen('http'), [])

    def test_the_address_a_program_chose_means_nothing(self):
        box = self.ruled({'X-Rule': 'r'})
        self.get(box, 'https://allowed.example/', '--resolve', f'allowed.example:443:{TWO}')
        self.assertEqual([one['address'] for one in self.seen('http')], [ONE])

    def test_a_rule_opens_nothing(self):
        box = self.ruled({'X-Rule': 'r'}, denyOut=[ALL], allowOut=['a.wild.example'])
        told = self.get(box, 'https://allowed.example/', '--resolve', f'allowed.example:443:{ONE}')
        self.assertIn('access denied', told)
        box.put(denyOut=[ALL], allowOut=['allowed.example'], rules=rules(allowed_example={'X-Rule': 'r'}))
        self.get(box, 'https://allowed.example/')
        self.assertEqual(self.headers()['x-rule'], 'r')
        # Allowed by its name's own address only: the name must lead to one that is allowed.
        box.put(denyOut=[ONE], rules=rules(allowed_example={'X-Rule': 'r'}))
        told = self.get(box, 'https://allowed.example/', '--resolve', f'allowed.example:443:{TWO}')
        self.assertIn('no address that may be reached', told)
        self.assertEqual(self.seen('http'), [])

    def test_rules_put_later_and_taken_away(self):
        box = self.box()
        box.put(rules=rules(allowed_example={'X-Rule': 'r'}))
        self.get(box, 'https://allowed.example/')
        self.assertEqual(self.headers()['x-rule'], 'r')
        box.put()
        self.curl(box, 'https://allowed.example/')
        self.assertNotIn('x-rule', self.headers())

    def test_they_last(self):
        box = self.ruled({'X-Rule': 'r'})
        for how in (self.server.stop, self.server.kill):
            how()
            self.server.start()
            self.get(box, 'https://allowed.example/')
            self.assertEqual(self.headers()['x-rule'], 'r')
        box.api('POST', f'/sandboxes/{box.id}/pause', {'memory': False})
        box.api('POST', f'/sandboxes/{box.id}/connect', {'timeout': 300})
        self.get(box, 'https://allowed.example/')
        self.assertEqual(self.headers()['x-rule'], 'r')
        self.assertEqual(box.run('grep -c "BEGIN CERT" /usr/local/share/ca-certificates/*').text().strip(), '1')

    def test_large_bodies_pass_both_ways(self):
        box = self.ruled({'X-Rule': 'r'})
        said = box.run('head -c 3000000 /dev/zero | tr "\\0" Q >/tmp/big; curl -sS --data-binary @/tmp/big '
                       'https://allowed.example/ | tr -dc Q | wc -c').text()
        self.assertEqual(said.strip(), '3000000')

    def test_a_reply_that_is_cut_is_not_made_to_look_complete(self):
        box = self.ruled({'X-Rule': 'r'})
        self.assertEqual(self.get(box, 'https://allowed.example/whole'), 'half')
        self.assertRegex(self.get(box, 'https://allowed.example/cut'), r'curl: \((18|56)\)')

    def test_no_other_host_by_an_upgrade(self):
        box = self.ruled({'X-Rule': 'r'})
        told = self.get(box, 'https://allowed.example/', '-H', "'Connection: Upgrade, HTTP2-Settings'",
                        '-H', "'Upgrade: h2c'", '-H', "'HTTP2-Settings: AAMAAABkAAQAAP__'", '-w', "'%{http_code}'")
        self.assertTrue(told.endswith('200'), told)
        got = self.headers()
        self.assertEqual((got['x-rule'], got.get('upgrade'), got.get('http2-settings')), ('r', None, None))

    def test_what_is_wrong_is_refused(self):
        for wrong, words in (({'*': []}, 'not a domain name'),
                             ({'allowed.example': [{}, {}]}, 'at most one rule'),
                             (rules(allowed_example={'Host': 'x'}), 'cannot be set'),
                             (rules(allowed_example={f'X-{i}': '' for i in range(21)}), 'more than 20'),
                             ({f'h{i}.example': [] for i in range(11)}, 'at most 10')):
            with self.subTest(words=words), self.assertRaisesRegex(RuntimeError, f'400.*{words}'):
                self.box(network={'rules': wrong})


if __name__ == '__main__':
    unittest.main()
