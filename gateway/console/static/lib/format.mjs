/**
 * Figures as people read them. Money arrives as decimal text and stays exact. Only charts convert it to floats.
 */

const DASH = "–";
const STEPS = [[10n ** 12n, "T"], [10n ** 9n, "B"], [10n ** 6n, "M"], [10n ** 3n, "k"]];

/** Parse decimal text into an integer and its number of decimal places. */
function parsed(text) {
  const [whole, fraction = ""] = String(text).split(".");
  return {digits: BigInt(whole + fraction), places: fraction.length};
}

/** Add decimal texts exactly, and return decimal text. */
export function sum(texts) {
  const all = texts.map(parsed);
  const places = Math.max(0, ...all.map((each) => each.places));
  const total = all.reduce((so_far, each) => so_far + each.digits * 10n ** BigInt(places - each.places), 0n);
  return written(total, places);
}

/** Write amounts with their currencies. `byCurrency` maps a currency to its amount. */
export const amounts = (byCurrency) => Object.entries(byCurrency).map(([currency, amount]) => `${amount} ${currency}`).join(", ");
export const minus = (one, other) => sum([one, String(other).startsWith("-") ? other.slice(1) : `-${other}`]);

/** Return `amount * of / count` with ten more decimal places, or null if `count` is zero. */
export function per(amount, count, of = 1) {
  if (!count) return null;
  const {digits, places} = parsed(amount);
  return written((digits * BigInt(of) * 10n ** 10n) / BigInt(count), places + 10);
}

function written(digits, places) {
  const sign = digits < 0n ? "-" : "";
  const text = (digits < 0n ? -digits : digits).toString().padStart(places + 1, "0");
  return sign + (places ? `${text.slice(0, -places)}.${text.slice(-places)}` : text);
}

/** Round decimal text to `places`; halves round away from zero. */
export function rounded(text, places) {
  const {digits, places: has} = parsed(text);
  if (has <= places) return written(digits * 10n ** BigInt(places - has), places);
  const unit = 10n ** BigInt(has - places);
  const half = digits < 0n ? -unit / 2n : unit / 2n;
  return written((digits + half) / unit, places);
}

function grouped(text) {
  const [whole, fraction] = text.split(".");
  const joined = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return fraction === undefined ? joined : `${joined}.${fraction}`;
}

/** Write money: "$1,234.56", four decimals below a cent, "<$0.0001" for the smallest amounts, "unknown" for null. */
export function money(text) {
  if ((text ?? null) === null) return "unknown";
  const sign = String(text).startsWith("-") ? "-" : "";
  const plain = String(text).replace("-", "");
  const {digits, places} = parsed(plain);
  if (digits === 0n) return "$0.00";
  if (100n * digits >= 10n ** BigInt(places)) return `${sign}$${grouped(rounded(plain, 2))}`;
  const short = rounded(plain, 4);
  return short === "0.0000" ? `${sign}<$0.0001` : `${sign}$${short}`;
}

/** Write money with a fixed number of decimals, for columns. A smaller amount than they can show is "<$0.01". */
export function fixed(text, places = 2) {
  if ((text ?? null) === null) return "unknown";
  const [sign, plain] = String(text).startsWith("-") ? ["-", String(text).slice(1)] : ["", String(text)];
  const short = rounded(plain, places);
  if (parsed(plain).digits === 0n || parsed(short).digits !== 0n) return `${parsed(short).digits ? sign : ""}$${grouped(short)}`;
  return `${sign}<$${(1 / 10 ** places).toFixed(places)}`;
}

/** Return the number of decimals of a column with these amounts: two, or four if all amounts are below ten cents. */
export const placesOf = (texts) => (texts.some((text) => Math.abs(Number(text)) >= 0.1) || !texts.some(Number) ? 2 : 4);

/** Write money short, such as "$12.4k", for chart axes. `step`: the distance of the labels, which decides the number of decimals. */
export function shortMoney(number, step) {
  const amount = Math.abs(number);
  const sign = number < 0 ? "-" : "";
  const [size, letter] = STEPS.find(([least]) => amount >= Number(least)) ?? [1, ""];
  const decimals = Math.max(0, Math.ceil(-Math.log10(step / Number(size)) - 1e-9));
  const places = decimals === 1 && !letter ? 2 : decimals; // cents have two
  return `${sign}$${amount === 0 ? 0 : (amount / Number(size)).toFixed(places)}${letter}`;
}

/** Write a count short, such as "12.4M". Numbers below 1,000 keep all digits. */
export function count(number) {
  if ((number ?? null) === null) return "unknown";
  const exact = BigInt(number);
  const amount = exact < 0n ? -exact : exact;
  for (const [step, letter] of STEPS) {
    if (amount < step) continue;
    const tenths = (amount * 10n + step / 2n) / step;
    return `${exact < 0n ? "-" : ""}${trimmed(Number(tenths) / 10)}${letter}`;
  }
  return exact.toString();
}

const trimmed = (number) => number.toFixed(number < 100 ? 1 : 0).replace(/\.0$/, "");

/** Write a count with all its digits, for tooltips and copies. */
export const exactCount = (number) => ((number ?? null) === null ? "unknown" : grouped(String(number)));

const MOST_PERCENT = 999;

/**
 * Write a change as {percent: "+12 %", amount: "+$340.00"}. If the old value is zero, percent is "new". If both values are zero, or if the
 * old value is less than `least`, percent is a dash, because a percentage of cents misleads. A larger one than +999 % is ">+999 %".
 */
export function change(now, before, format = money, least = format === money ? 1 : 0) {
  if (now === null || before === null) return {percent: DASH, amount: ""};
  const [one, other] = [parsed(now), parsed(before)];
  if (other.digits === 0n) return {percent: one.digits === 0n ? DASH : "new", amount: ""};
  const difference = minus(now, before);
  const scale = BigInt(Math.max(one.places, other.places));
  const [a, b] = [one, other].map((each) => each.digits * 10n ** (scale - BigInt(each.places)));
  const tenths = Number(((a - b) * 1000n) / (b < 0n ? -b : b));
  const percent = Math.round(tenths / 10);
  const shown = format(difference);
  const sign = shown.startsWith("-") ? "" : "+";
  const isSame = parsed(difference).digits === 0n;
  const isLittle = Math.abs(Number(before)) < least;
  const written = percent > MOST_PERCENT ? `>+${MOST_PERCENT}` : `${percent > 0 ? "+" : ""}${percent}`;
  return {percent: isLittle ? DASH : `${written} %`, amount: isSame ? "" : `${sign}${shown}`};
}

/** Write a share in whole percent. Write "<1 %" for a smaller share, and a dash if the whole is zero. */
export function percent(part, whole) {
  const [one, other] = [Number(part), Number(whole)];
  if (!other) return DASH;
  const share = (100 * one) / other;
  return share > 0 && share < 1 ? "<1 %" : `${Math.round(share)} %`;
}

/** Write milliseconds as "340 ms", "1.2 s", "14 min", "5 h" or "3 d". */
export function duration(ms) {
  if ((ms ?? null) === null) return "unknown";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${trimmed(ms / 1000)} s`;
  if (ms < 5400000) return `${trimmed(ms / 60000)} min`;
  return ms < 129600000 ? `${trimmed(ms / 3600000)} h` : `${trimmed(ms / 86400000)} d`;
}

/** Write the time of a Date, such as "12:04:31 UTC". */
export const clockTime = (date) => `${date.toISOString().slice(11, 19)} UTC`;

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** Write the day of an ISO text, such as "26 Nov", with the year if it is not the running one. Tables and files have ISO days. */
export function dayText(iso, now = new Date()) {
  const [year, month, date] = iso.slice(0, 10).split("-").map(Number);
  return `${date} ${MONTHS[month - 1]}${year === now.getUTCFullYear() ? "" : ` ${year}`}`;
}

/** Write the day of an ISO text and its hour, if it has one: "26 Nov 04:00". */
export const timeText = (iso) => (iso.length > 10 ? `${dayText(iso)} ${iso.slice(11, 16)}` : dayText(iso));

/** Write a count with its noun: "1 call", "2,000 calls". */
export const counted = (number, noun, nouns = `${noun}s`) => `${exactCount(number)} ${Number(number) === 1 ? noun : nouns}`;

/** Write the bounds of a forecast. A bound that is written like the forecast itself is left out. */
export function bounds({total, low, high}, write = money) {
  const [middle, least, most] = [total, low, high].map((text) => write(text));
  if (least === most) return "";
  return middle === least ? `at most ${most}` : middle === most ? `at least ${least}` : `${least} to ${most}`;
}

/** Write how long ago an ISO time was, in one unit. */
export function ago(iso, now = new Date()) {
  if (!iso) return "never";
  const s = Math.max(0, (now - new Date(iso)) / 1000);
  if (s < 90) return `${Math.round(s)} s ago`;
  if (s < 5400) return `${Math.round(s / 60)} min ago`;
  return s < 129600 ? `${Math.round(s / 3600)} h ago` : `${Math.round(s / 86400)} d ago`;
}
