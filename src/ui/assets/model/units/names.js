// The names of Grafana's units by category, for a picker; not needed to show values.

/**
 * @typedef {{id: string, name: string}} UnitName
 * @typedef {{category: string, units: UnitName[]}} UnitCategory
 */

const NAMES = `# Misc
none Number
string String
short short
sishort SI short
percent Percent (0-100)
percentunit Percent (0.0-1.0)
humidity Humidity (%H)
dB Decibel
candela Candela (cd)
hex0x Hexadecimal (0x)
hex Hexadecimal
sci Scientific notation
locale Locale format
pixel Pixels
# Acceleration
accMS2 Meters/sec²
accFS2 Feet/sec²
accG G unit
# Angle
degree Degrees (°)
radian Radians
grad Gradian
arcmin Arc Minutes
arcsec Arc Seconds
# Area
areaM2 Square Meters (m²)
areaF2 Square Feet (ft²)
areaMI2 Square Miles (mi²)
acres Acres (ac)
hectares Hectares (ha)
# Computation
flops FLOP/s
mflops MFLOP/s
gflops GFLOP/s
tflops TFLOP/s
pflops PFLOP/s
eflops EFLOP/s
zflops ZFLOP/s
yflops YFLOP/s
# Concentration
ppm parts-per-million (ppm)
conppb parts-per-billion (ppb)
conngm3 nanogram per cubic meter (ng/m³)
conngNm3 nanogram per normal cubic meter (ng/Nm³)
conμgm3 microgram per cubic meter (μg/m³)
conμgNm3 microgram per normal cubic meter (μg/Nm³)
conmgm3 milligram per cubic meter (mg/m³)
conmgNm3 milligram per normal cubic meter (mg/Nm³)
congm3 gram per cubic meter (g/m³)
congNm3 gram per normal cubic meter (g/Nm³)
conmgdL milligrams per decilitre (mg/dL)
conmmolL millimoles per litre (mmol/L)
# Currency
currencyUSD Dollars ($)
currencyGBP Pounds (£)
currencyEUR Euro (€)
currencyJPY Yen (¥)
currencyRUB Rubles (₽)
currencyUAH Hryvnias (₴)
currencyBRL Real (R$)
currencyDKK Danish Krone (kr)
currencyISK Icelandic Króna (kr)
currencyNOK Norwegian Krone (kr)
currencySEK Swedish Krona (kr)
currencyCZK Czech koruna (czk)
currencyCHF Swiss franc (CHF)
currencyPLN Polish Złoty (PLN)
currencyBTC Bitcoin (฿)
currencymBTC Milli Bitcoin (฿)
currencyμBTC Micro Bitcoin (฿)
currencyZAR South African Rand (R)
currencyINR Indian Rupee (₹)
currencyKRW South Korean Won (₩)
currencyIDR Indonesian Rupiah (Rp)
currencyPHP Philippine Peso (PHP)
currencyVND Vietnamese Dong (VND)
currencyTRY Turkish Lira (₺)
currencyMYR Malaysian Ringgit (RM)
currencyXPF CFP franc (XPF)
currencyBGN Bulgarian Lev (BGN)
currencyPYG Guaraní (₲)
currencyUYU Uruguay Peso (UYU)
currencyILS Israeli New Shekels (₪)
# Data
bytes bytes(IEC)
decbytes bytes(SI)
bits bits(IEC)
decbits bits(SI)
kbytes kibibytes
deckbytes kilobytes
mbytes mebibytes
decmbytes megabytes
gbytes gibibytes
decgbytes gigabytes
tbytes tebibytes
dectbytes terabytes
pbytes pebibytes
decpbytes petabytes
# Data rate
pps packets/sec
binBps bytes/sec(IEC)
Bps bytes/sec(SI)
binbps bits/sec(IEC)
bps bits/sec(SI)
KiBs kibibytes/sec
Kibits kibibits/sec
KBs kilobytes/sec
Kbits kilobits/sec
MiBs mebibytes/sec
Mibits mebibits/sec
MBs megabytes/sec
Mbits megabits/sec
GiBs gibibytes/sec
Gibits gibibits/sec
GBs gigabytes/sec
Gbits gigabits/sec
TiBs tebibytes/sec
Tibits tebibits/sec
TBs terabytes/sec
Tbits terabits/sec
PiBs pebibytes/sec
Pibits pebibits/sec
PBs petabytes/sec
Pbits petabits/sec
# Date & time
dateTimeAsIso Datetime ISO
dateTimeAsIsoNoDateIfToday Datetime ISO (No date if today)
dateTimeAsUS Datetime US
dateTimeAsUSNoDateIfToday Datetime US (No date if today)
dateTimeAsLocal Datetime local
dateTimeAsLocalNoDateIfToday Datetime local (No date if today)
dateTimeAsSystem Datetime default
dateTimeFromNow From Now
# Energy
watt Watt (W)
kwatt Kilowatt (kW)
megwatt Megawatt (MW)
gwatt Gigawatt (GW)
mwatt Milliwatt (mW)
Wm2 Watt per square meter (W/m²)
voltamp Volt-Ampere (VA)
kvoltamp Kilovolt-Ampere (kVA)
voltampreact Volt-Ampere reactive (VAr)
kvoltampreact Kilovolt-Ampere reactive (kVAr)
watth Watt-hour (Wh)
watthperkg Watt-hour per Kilogram (Wh/kg)
kwatth Kilowatt-hour (kWh)
kwattm Kilowatt-min (kWm)
mwatth Megawatt-hour (MWh)
amph Ampere-hour (Ah)
kamph Kiloampere-hour (kAh)
mamph Milliampere-hour (mAh)
joule Joule (J)
ev Electron volt (eV)
amp Ampere (A)
kamp Kiloampere (kA)
mamp Milliampere (mA)
volt Volt (V)
kvolt Kilovolt (kV)
mvolt Millivolt (mV)
dBm Decibel-milliwatt (dBm)
mohm Milliohm (mΩ)
ohm Ohm (Ω)
kohm Kiloohm (kΩ)
Mohm Megaohm (MΩ)
farad Farad (F)
µfarad Microfarad (µF)
nfarad Nanofarad (nF)
pfarad Picofarad (pF)
ffarad Femtofarad (fF)
henry Henry (H)
mhenry Millihenry (mH)
µhenry Microhenry (µH)
lumens Lumens (Lm)
# Flow
flowgpm Gallons/min (gpm)
flowcms Cubic meters/sec (cms)
flowcfs Cubic feet/sec (cfs)
flowcfm Cubic feet/min (cfm)
litreh Litre/hour
flowlpm Litre/min (L/min)
flowmlpm milliLitre/min (mL/min)
lux Lux (lx)
# Force
forceNm Newton-meters (Nm)
forcekNm Kilonewton-meters (kNm)
forceN Newtons (N)
forcekN Kilonewtons (kN)
# Hash rate
Hs hashes/sec
KHs kilohashes/sec
MHs megahashes/sec
GHs gigahashes/sec
THs terahashes/sec
PHs petahashes/sec
EHs exahashes/sec
# Mass
massmg milligram (mg)
massg gram (g)
masslb pound (lb)
masskg kilogram (kg)
masst metric ton (t)
# Length
lengthmm millimeter (mm)
lengthin inch (in)
lengthft feet (ft)
lengthm meter (m)
lengthkm kilometer (km)
lengthmi mile (mi)
# Pressure
pressurembar Millibars
pressurebar Bars
pressurekbar Kilobars
pressurepa Pascals
pressurehpa Hectopascals
pressurekpa Kilopascals
pressurehg Inches of mercury
pressurepsi PSI
# Radiation
radbq Becquerel (Bq)
radci curie (Ci)
radgy Gray (Gy)
radrad rad
radsv Sievert (Sv)
radmsv milliSievert (mSv)
radusv microSievert (µSv)
radrem rem
radexpckg Exposure (C/kg)
radr roentgen (R)
radsvh Sievert/hour (Sv/h)
radmsvh milliSievert/hour (mSv/h)
radusvh microSievert/hour (µSv/h)
# Rotational Speed
rotrpm Revolutions per minute (rpm)
rothz Hertz (Hz)
rotkhz Kilohertz (kHz)
rotmhz Megahertz (MHz)
rotghz Gigahertz (GHz)
rotrads Radians per second (rad/s)
rotdegs Degrees per second (°/s)
# Temperature
celsius Celsius (°C)
fahrenheit Fahrenheit (°F)
kelvin Kelvin (K)
# Time
hertz Hertz (1/s)
ns nanoseconds (ns)
µs microseconds (µs)
ms milliseconds (ms)
s seconds (s)
m minutes (m)
h hours (h)
d days (d)
dtdurationms duration (ms)
dtdurations duration (s)
dthms duration (hh:mm:ss)
dtdhms duration (d hh:mm:ss)
timeticks Timeticks (s/100)
clockms clock (ms)
clocks clock (s)
# Throughput
cps counts/sec (cps)
ops ops/sec (ops)
reqps requests/sec (rps)
rps reads/sec (rps)
wps writes/sec (wps)
iops I/O ops/sec (iops)
eps events/sec (eps)
mps messages/sec (mps)
recps records/sec (rps)
rowsps rows/sec (rps)
cpm counts/min (cpm)
opm ops/min (opm)
reqpm requests/min (rpm)
rpm reads/min (rpm)
wpm writes/min (wpm)
epm events/min (epm)
mpm messages/min (mpm)
recpm records/min (rpm)
rowspm rows/min (rpm)
# Velocity
velocityms meters/second (m/s)
velocitykmh kilometers/hour (km/h)
velocitymph miles/hour (mph)
velocityknot knot (kn)
# Volume
mlitre millilitre (mL)
litre litre (L)
m3 cubic meter
Nm3 Normal cubic meter
dm3 cubic decimeter
gallons gallons
# Boolean
bool True / False
bool_yes_no Yes / No
bool_on_off On / Off`;

/**
 * Returns the categories and their units, in Grafana's order.
 * @returns {UnitCategory[]}
 */
export function units() {
  return NAMES.split(/^# /m).slice(1).map((block) => {
    const [category, ...lines] = block.trimEnd().split('\n');
    const rows = lines.map((line) => /^(\S+) (.*)$/.exec(line) ?? []);
    return { category, units: rows.map(([, id, name]) => ({ id, name })) };
  });
}
