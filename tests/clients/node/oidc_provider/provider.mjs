// An OpenID provider for tests. Any typed name is a person, and tokens are for the requested resource.
import { generateKeyPairSync } from 'node:crypto';
import { Provider } from 'oidc-provider';

const port = Number(process.argv[2]);
const issuer = `http://127.0.0.1:${port}`;
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const person = (id) => ({ email: `${id}@example.com`, email_verified: true });
// A client whose id is the address of a document. It is built in here, because no test serves that document over TLS.
const CLIENT = 'https://client.example.com/metadata.json';
const document = {
  client_id: CLIENT,
  client_name: 'a client with a document',
  application_type: 'native',
  redirect_uris: ['http://127.0.0.1:33418/callback'],
  grant_types: ['authorization_code', 'refresh_token'],
  response_types: ['code'],
  token_endpoint_auth_method: 'none',
};

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
      client_id: 'inspector', // no refresh tokens, because it mistakes a refreshed token for the wider one it requested
      application_type: 'native',
      token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code'],
      redirect_uris: ['http://127.0.0.1/oauth/callback'],
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
  issueRefreshToken: async (_, client) => client.grantTypeAllowed('refresh_token'),
  fetch: (url, options) => (String(url) === CLIENT ? Response.json(document) : globalThis.fetch(url, options)),
  features: {
    clientIdMetadataDocument: { enabled: true, ack: 'draft-02' },
    clientCredentials: { enabled: true },
    devInteractions: { enabled: true },
    registration: { enabled: true },
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
// Print one line per token request with its result.
provider.on('grant.success', ({ oidc }) => console.log(oidc.params.grant_type));
provider.listen(port, '127.0.0.1');
