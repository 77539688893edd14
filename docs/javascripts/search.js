// The search of the theme finds all words that begin with a word of the query, so "a" would find "adapter".
// With a boost of 1, a word finds only itself, and the index has no common words.
const COMMON = new Set(
  ("a an and are as at be by can do does for from have how i if in is it my not of on one or our that the their " +
    "there this to was we were what when where which who why will with you").split(" "),
);
const QUERY = 2; // type of the theme's messages with a query

const withCommonWordsWhole = (query) =>
  query
    .replaceAll("?", " ")
    .split(/\s+/)
    .map((word) => (COMMON.has(word.toLowerCase()) ? `${word}^1` : word))
    .join(" ");

const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...rest) {
  const query = message?.type === QUERY ? { ...message, data: withCommonWordsWhole(message.data) } : message;
  return post.call(this, query, ...rest);
};
