// An OpenID provider for the tests: people named by what they type, tokens for the resource that is asked for.
import { generateKeyPairSync } from 'node:crypto';
import { Provider } from 'oidc-provider';

const port = Number(process.argv[2]);
const issuer = `http://127.0.0.1:${port}`;
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const person = (id) => ({ email: `${id}@example.com`, email_verified: true });

const provider = new Provider(issuer, {
  jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'RS256', kid: 'one' }] },
  clients: [
    {
      client_id: 'assistant',
      application_type: 'native',
      token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code', 'refresh_token'],
      redirect_uris: ['http://127.0.0.1:33418/callback'],
      response_types: ['code'],
    },
    {
      client_id: 'robot',
      client_secret: 'robot-secret',
      grant_types: ['client_credentials'],
      redirect_uris: [],
      response_types: [],
    },
  ],
  scopes: ['openid', 'email', 'offline_access', 'tollhouse.read', 'tollhouse.write'],
  claims: { openid: ['sub'], email: ['email', 'email_verified'] },
  pkce: { required: () => true },
  findAccount: (_, id) => ({ accountId: id, claims: async () => ({ sub: id, ...person(id) }) }),
  extraTokenClaims: async (_, token) => (token.accountId ? person(token.accountId) : {}),
  ttl: { AccessToken: 300, ClientCredentials: 300, Grant: 3600, Interaction: 3600, Session: 3600, RefreshToken: 3600 },
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: true },
    registration: { enabled: true },
    introspection: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: async () => true,
      getResourceServerInfo: async (_, resource) => ({
        scope: 'tollhouse.read tollhouse.write',
        audience: resource,
        accessTokenTTL: 300,
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
});
provider.listen(port, '127.0.0.1');
